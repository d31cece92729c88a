"""Every way in which a gpt-oss model, or a server in front of it, is known to bend the harmony format.

The cases are those of the Context-1 reference, sections 1.2 and 4.4, and of what a real vLLM server was seen to send.
"""

import pytest
from support.harness.harmony import call, concluded, harmony, several, thought, tokens

from hopnode.worker.inference.harmony.reply import HarmonyReply, looks_like_harmony, pieces_of, read_reply, tool_name

QUERY = '{"query": "x"}'
SEARCH = ("search_corpus", QUERY)


def read(*parts: str) -> HarmonyReply:
    """Read from token ids, and read from the same text: both must say the same."""
    reply = harmony().read(tokens(*parts))
    assert read_reply(pieces_of("".join(parts))) == reply
    return reply


def calls(reply: HarmonyReply) -> list[tuple[str, str]]:
    return [(made.name, made.arguments) for made in reply.calls]


def test_reasoning_and_a_call_in_the_trained_form() -> None:
    reply = read(thought("Who directed it?"), call(*SEARCH))
    assert reply.reasoning == "Who directed it?"
    assert calls(reply) == [SEARCH]
    assert (reply.text, reply.broken) == ("", False)


def test_reasoning_and_a_final_list() -> None:
    reply = read(thought("Enough."), concluded("d1_0"))
    assert reply.text.startswith("<Document id=d1_0>")
    assert (reply.calls, reply.broken) == ((), False)


def test_calls_side_by_side_stay_one_call_of_their_carrier_here() -> None:
    reply = read(several(("search_corpus", {"query": "x"}), ("prune_chunks", {"chunk_ids": ["d1_0"]})))
    assert [made.name for made in reply.calls] == ["multi_tool_use"]
    assert reply.calls[0].arguments.startswith("[{")


@pytest.mark.parametrize(
    "header",
    [
        "<|start|>assistant to=functions.search_corpus<|channel|>commentary <|constrain|>json",
        "<|start|>assistant<|channel|>commentary to=functions.search_corpus <|constrain|>json",
        "<|channel|>commentary to=functions.search_corpus <|constrain|>json",
        " to=functions.search_corpus<|channel|>commentary json",
        "assistant to=functions.search_corpus<|channel|>commentary <|constrain|>json",
        "<|start|>assistant to=search_corpus<|channel|>commentary <|constrain|>json",
        "<|start|>assistant<|channel|>commentary to=functions.search_corpus<|constrain|>json",
        "<|start|>assistant<|channel|>commentary to=<|constrain|>functions.search_corpus json",
        "<|start|>assistant to=functions.search_corpus<|channel|>commentary<|channel|>commentary json",
        "<|start|>assistant<|channel|>commentary to=functions.search_corpus code",
        "<|start|>assistant to=functions.search_corpus",
        "<|start|>assistant to=functions.search_corpus<|channel|>commentary json json to=",
        "<|start|> to=functions.search_corpus<|channel|>commentary",
    ],
    ids=range(13),
)
def test_a_header_may_put_its_parts_in_any_order_and_leave_some_out(header: str) -> None:
    assert calls(read(f"{header}<|message|>{QUERY}<|call|>")) == [SEARCH]


@pytest.mark.parametrize("channel", ["analysis", "final", "commentary"])
def test_a_call_counts_on_whatever_channel_it_stands(channel: str) -> None:
    reply = read(f"<|start|>assistant<|channel|>{channel} to=functions.search_corpus<|message|>{QUERY}<|call|>")
    assert calls(reply) == [SEARCH]


def test_arguments_that_stand_in_the_header_are_arguments() -> None:
    reply = read(f"<|start|>assistant to=functions.search_corpus<|channel|>commentary <|constrain|>json{QUERY}<|call|>")
    assert calls(reply) == [SEARCH]


def test_a_message_without_a_channel_is_reasoning() -> None:
    reply = read("<|start|>assistant<|message|>Let me see.<|end|>", call(*SEARCH))
    assert (reply.reasoning, calls(reply)) == ("Let me see.", [SEARCH])
    assert reply.broken


def test_a_reply_without_any_structure_is_reasoning() -> None:
    reply = read("I would search for Oslo.")
    assert (reply.reasoning, reply.text, reply.calls, reply.broken) == ("I would search for Oslo.", "", (), True)


def test_a_forgotten_end_does_not_swallow_the_next_message() -> None:
    reply = read(
        "<|channel|>analysis<|message|>Hm.<|channel|>commentary to=functions.search_corpus<|message|>",
        QUERY,
        "<|call|>",
    )
    assert (reply.reasoning, calls(reply)) == ("Hm.", [SEARCH])
    reply = read("<|channel|>analysis<|message|>Hm.<|start|>assistant<|channel|>final<|message|>Done.<|return|>")
    assert (reply.reasoning, reply.text) == ("Hm.", "Done.")


def test_a_forgotten_start_is_no_obstacle() -> None:
    reply = read("<|channel|>analysis<|message|>Hm.<|end|>\n<|channel|>final<|message|>Done.<|return|>")
    assert (reply.reasoning, reply.text) == ("Hm.", "Done.")


def test_several_thoughts_are_put_together() -> None:
    assert read(thought("One."), thought("Two."), concluded("a_0")).reasoning == "One.\nTwo."


def test_what_is_said_beside_a_call_is_text() -> None:
    reply = read("<|channel|>commentary<|message|>I search now.<|end|>", call(*SEARCH))
    assert (reply.text, calls(reply)) == ("I search now.", [SEARCH])


def test_a_call_that_names_no_tool_is_none_and_its_arguments_are_no_answer() -> None:
    reply = read('<|start|>assistant<|channel|>commentary <|constrain|>json<|message|>{"chunk_ids": ["d1_0"]}<|call|>')
    assert (reply.calls, reply.text, reply.broken) == ((), "", True)
    for nobody in ("all", "user", "assistant", ""):
        assert read(f"<|start|>assistant to={nobody}<|channel|>commentary<|message|>{QUERY}<|call|>").calls == ()


def test_two_calls_ended_as_messages_are_two_calls() -> None:
    first = call("search_corpus", QUERY).replace("<|call|>", "<|end|>")
    reply = read(first, call("grep_corpus", '{"pattern": "y"}'))
    assert calls(reply) == [SEARCH, ("grep_corpus", '{"pattern": "y"}')]
    assert len({made.id for made in reply.calls}) == 2


def test_nothing_counts_after_a_finished_call() -> None:
    """A server that does not know the stop token lets the model write the tool's answer, and go on from there."""
    invented = (
        '<|start|>functions.search_corpus to=assistant<|channel|>commentary<|message|>"# DOCUMENT ID: d9_0"<|end|>'
    )
    reply = read(call(*SEARCH), invented, call("read_document", '{"doc_id": "d9"}'), concluded("d9_0"))
    assert calls(reply) == [SEARCH]
    assert (reply.text, reply.reasoning) == ("", "")


@pytest.mark.parametrize(
    "author",
    [
        "functions.search_corpus to=assistant",
        "search_corpus to=assistant",
        "user",
        "system",
        "developer",
        "tool",
    ],
)
@pytest.mark.parametrize("start", ["<|start|>", ""])
def test_what_somebody_else_is_made_to_say_is_neither_text_nor_call(author: str, start: str) -> None:
    reply = read(
        thought("Hm."), f'{start}{author}<|channel|>commentary<|message|><Document id="d9_0"><|end|>', concluded("d1_0")
    )
    assert "d9_0" not in reply.text + reply.reasoning
    assert reply.text.startswith("<Document id=d1_0>")
    assert reply.broken
    addressed = f"{start}{author} to=functions.search_corpus<|message|>{QUERY}<|end|>"
    assert read(addressed).calls == () or "to=assistant" in author


@pytest.mark.parametrize(
    ("text", "reasoning"),
    [
        ("<|channel|>analysis<|message|>I was about to", "I was about to"),
        ("<|start|>assistant<|channel|>analysis", ""),
        ("<|start|>", ""),
        ("<|message|>", ""),
        ("", ""),
    ],
)
def test_a_reply_that_breaks_off_keeps_what_it_has(text: str, reasoning: str) -> None:
    reply = read(text)
    assert (reply.reasoning, reply.calls) == (reasoning, ())


def test_a_call_that_breaks_off_keeps_half_its_arguments_for_the_tool_to_complain_of() -> None:
    assert calls(read(call("search_corpus", '{"query": "Os').removesuffix("<|call|>"))) == [
        ("search_corpus", '{"query": "Os')
    ]
    assert read("<|start|>assistant to=functions.search_corpus<|channel|>commentary <|constrain|>json").calls == ()


def test_a_reply_ends_at_the_end_of_text_and_unknown_ids_are_passed_over() -> None:
    plain = tokens(thought("Hm."))
    assert harmony().read([*plain, 199_999, *tokens(call(*SEARCH))]) == harmony().read(plain)
    strange = [200_013, -5, 10**12, 201_088, 200_000, 199_998]
    assert harmony().read([strange[0], *plain, *strange]) == harmony().read(plain)


def test_half_a_letter_at_the_end_is_no_obstacle() -> None:
    emoji = harmony().encode("🜀")
    assert len(emoji) > 1
    reply = harmony().read([*tokens("<|channel|>final<|message|>a"), *emoji[:-1]])
    assert reply.text.startswith("a")


def test_structure_in_the_text_of_a_message_is_only_structure_as_a_token() -> None:
    """Token ids tell the marker from the same letters; only a server's text cannot."""
    spelled = [token for letter in "<|call|>" for token in harmony().encode(letter)]
    reply = harmony().read([*tokens("<|channel|>final<|message|>say "), *spelled, *tokens(" now<|return|>")])
    assert reply.text == "say <|call|> now"


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("search_corpus", "search_corpus"),
        ("functions.search_corpus", "search_corpus"),
        ("search_corpus<|channel|>commentary", "search_corpus"),
        (" functions.grep_corpus<|constrain|>json", "grep_corpus"),
        ("<|constrain|>functions.grep_corpus", "grep_corpus"),
        ("", ""),
    ],
)
def test_names_with_remains_of_the_format_are_cleaned(written: str, name: str) -> None:
    assert tool_name(written) == name


def test_text_with_structure_in_it_is_told_from_text_without() -> None:
    assert looks_like_harmony("<|channel|>analysis<|message|>x")
    assert not looks_like_harmony("a < | b |> <|im_start|>")
