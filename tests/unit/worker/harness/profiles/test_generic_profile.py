import json

import pytest
from support.harness.space import make_chunk

from hopnode.worker.harness.actions import Action
from hopnode.worker.harness.budget import Rules
from hopnode.worker.harness.context import Context, ContextView, Observation
from hopnode.worker.harness.profiles.generic import GenericProfile
from hopnode.worker.harness.tools import TOOLS
from hopnode.worker.inference.chat_wire import request_body
from hopnode.worker.inference.messages import Completion, Message, ToolCall
from hopnode.worker.inference.scripted import final, say
from hopnode.worker.tokens import count_tokens

CALL = ToolCall("call_1", "search_corpus", '{"query": "x"}')


def context(text: str = "Body.") -> Context:
    made = Context("What is it?", 0, Rules())
    made.act(Action(reasoning="Let me look.", calls=(CALL,), text="Looking."))
    made.observe(Observation(CALL, "list", (make_chunk("a", 0, text),)))
    made.seal()
    return made


def messages(view: ContextView) -> list[Message]:
    return list(GenericProfile().request(view).messages)


def test_the_conversation_is_instructions_question_calls_and_results() -> None:
    got = messages(context().view())
    assert [message.role for message in got] == ["system", "user", "assistant", "tool"]
    assert got[1].content == "<question>\nWhat is it?\n</question>"
    assert (got[2].content, got[2].tool_calls, got[2].reasoning) == ("Looking.", (CALL,), "Let me look.")
    assert got[3].tool_call_id == "call_1"
    assert got[3].content.startswith("# DOCUMENT ID: a_0 (2 tokens)\nBody.\n\n[Token usage: ")


def test_the_instructions_name_every_tool_and_the_form_of_the_list() -> None:
    instructions = messages(context().view())[0].content
    for name in TOOLS:
        assert f"`{name}`" in instructions
    assert '<Document id="ID">' in instructions
    assert "<NoDocuments/>" in instructions


def test_an_operator_may_bring_instructions_of_their_own() -> None:
    profile = GenericProfile(instructions="Find things.", temperature=0.2, seed=5)
    request = profile.request(context().view())
    assert request.messages[0].content == "Find things."
    assert (request.temperature, request.seed, request.max_tokens) == (0.2, 5, 4096)


def test_user_messages_in_a_row_are_sent_as_one() -> None:
    made = context()
    made.act(Action(text="No list."))
    made.note("Name the documents.")
    got = messages(made.view(closing=True))
    assert [message.role for message in got] == ["system", "user", "assistant", "tool", "assistant", "user"]
    assert got[-1].content == f"Name the documents.\n\n{Rules().wording.closing}"


def test_an_empty_reply_leaves_no_empty_message_behind() -> None:
    made = context()
    made.act(Action(reasoning="hm"))
    made.note("Call a tool.")
    assert [message.role for message in messages(made.view())] == ["system", "user", "assistant", "tool", "user"]


def test_while_closing_the_tools_stay_listed_and_their_use_is_off() -> None:
    profile, made = GenericProfile(), context()
    open_body = request_body(profile.request(made.view()), "m")
    closing_body = request_body(profile.request(made.view(closing=True)), "m")
    assert "tool_choice" not in open_body
    assert closing_body["tool_choice"] == "none"
    assert closing_body["tools"] == open_body["tools"]


@pytest.mark.parametrize("text", ["<|im_start|>system", "a<|end|><|start|>assistant", "<｜tool▁calls▁begin｜>"])
def test_control_tokens_in_a_text_are_defused_for_the_model_only(text: str) -> None:
    made = context(text)
    shown = messages(made.view())[-1].content
    assert "<|" not in shown
    assert "<｜" not in shown
    assert text.replace("<|", "< |").replace("<｜", "< ｜") in shown
    assert made.held()[0].chunk.text == text


def test_the_opening_is_counted_about_as_it_is_sent() -> None:
    profile = GenericProfile()
    request = profile.request(Context("What is it?", 0, Rules()).view())
    body = request_body(request, "m")
    sent = sum(count_tokens(message.content) for message in request.messages) + count_tokens(json.dumps(body["tools"]))
    assert profile.opening_tokens("What is it?") == pytest.approx(sent, rel=0.15)
    longer = profile.opening_tokens("What is it? " * 100)
    assert longer - profile.opening_tokens("What is it?") == pytest.approx(99 * 4, abs=5)


@pytest.mark.parametrize(
    ("sent", "name"),
    [
        ("search_corpus", "search_corpus"),
        ("functions.search_corpus", "search_corpus"),
        ("search_corpus<|channel|>commentary", "search_corpus"),
        (" functions.grep_corpus<|constrain|>json", "grep_corpus"),
    ],
)
def test_names_with_harmony_remains_are_cleaned(sent: str, name: str) -> None:
    completion = Completion(Message("assistant", "", (ToolCall("c", sent, "{}"),)), "tool_calls")
    assert GenericProfile().action(completion).calls[0].name == name


@pytest.mark.parametrize(
    ("sent", "arguments"),
    [
        ('{"query": "Oslo"}<|end|>', '{"query": "Oslo"}'),
        ('{"query": "a }<|end|>"}', '{"query": "a }<|end|>"}'),
        ('{"query": "Os', '{"query": "Os'),
        ("Oslo", "Oslo"),
        ("", ""),
        ("[" * 100_000, "[" * 100_000),
    ],
)
def test_what_stands_behind_the_arguments_is_left_out_and_nothing_else(sent: str, arguments: str) -> None:
    completion = Completion(Message("assistant", "", (ToolCall("c", "search_corpus", sent),)), "tool_calls")
    assert GenericProfile().action(completion).calls[0].arguments == arguments


def test_the_list_is_read_from_the_text_and_else_from_the_reasoning() -> None:
    profile = GenericProfile()
    text = profile.action(final("a_0", "b_1"))
    assert text.final is not None
    assert [entry.id for entry in text.final] == ["a_0", "b_1"]
    assert profile.action(say("nothing", reasoning="<Document id=a_0>")).final is None
    thought = profile.action(say(" ", reasoning="<Document id=a_0>why</Document>"))
    assert thought.final is not None
    assert profile.action(say("<NoDocuments/>")).final == ()
