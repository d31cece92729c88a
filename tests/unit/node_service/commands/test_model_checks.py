"""`hopnode model check` against a loopback server that has one thing wrong at a time; the real one is in `tests/vllm`."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from support.harness.context1 import sampled
from support.harness.harmony import call, concluded, several, thought
from support.servers.model_server import Answer, ModelDouble

from hopnode.node_service.commands.doctor.checks import Finding
from hopnode.node_service.commands.model_server.checks import HELLO, Target, examine
from hopnode.worker.inference.messages import Sampled
from hopnode.worker.inference.scripted import say, use
from hopnode.worker.searches.agents import ModelProfile
from hopnode.worker.settings import WorkerSettings

TWO = several(("search_corpus", {"query": "Moonrise director"}), ("grep_corpus", {"pattern": "Moonrise"}))
NO_PARSER = '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One data folder for all: the vocabulary is unpacked into it."""
    return tmp_path_factory.mktemp("data")


def answering(turn: str | Answer) -> Any:
    """Greets in token ids, and answers a turn with a completion, or with what is no completion."""

    def answer(path: str, body: Mapping[str, Any]) -> Answer:
        if path == "/v1/completions" and body["max_tokens"] == 1:
            return Sampled((200006,), "length", len(body["prompt"]), 1)
        if not isinstance(turn, str):
            return turn
        said = sampled(turn)
        return Sampled(said.tokens, "stop", len(body["prompt"]), len(said.tokens))

    return answer


def check(
    double: ModelDouble, folder: Path, profile: ModelProfile = "context-1", **settings: Any
) -> tuple[dict[str, Finding], Target]:
    given = {"chat_url": double.url, "chat_model": "context-1", "data_dir": folder} | settings
    target = Target(WorkerSettings(**given), profile)
    return examine(target), target


def failure(findings: Mapping[str, Finding]) -> tuple[str, Finding]:
    """The one check that failed; what follows it was not tried."""
    ((name, finding),) = [(name, one) for name, one in findings.items() if one.state == "failed"]
    return name, finding


def test_a_fit_server_passes_with_its_first_calls_shown(folder: Path) -> None:
    with ModelDouble(answering(thought("Two things at once.") + TWO)) as double:
        findings, target = check(double, folder)
    assert {finding.state for finding in findings.values()} == {"ok"}
    assert findings["a turn"].message.startswith(
        'the model calls search_corpus({"query": "Moonrise director"}) and 1 more'
    )
    assert [made["name"] for made in target.turn["calls"]] == ["search_corpus", "grep_corpus"]
    assert [path for path, _ in double.posts] == ["/v1/completions", "/v1/completions"]
    assert double.posts[0][1]["prompt"] == list(HELLO)


@pytest.mark.parametrize("profile", ["context-1-chat", "generic"])
def test_a_profile_over_chat_asks_the_chat_and_sends_no_token_ids(folder: Path, profile: ModelProfile) -> None:
    with ModelDouble(answering(use(("search_corpus", {"query": "Moonrise"})))) as double:
        findings, _ = check(double, folder, profile)
    assert (findings["token ids"].state, findings["a turn"].state) == ("off", "ok")
    assert [path for path, _ in double.posts] == ["/v1/chat/completions"]
    names = [tool["function"]["name"] for tool in double.posts[0][1]["tools"]]
    assert ("multi_tool_use" in names) == (profile == "context-1-chat")


def test_where_nothing_listens_the_mend_is_to_start_a_server(folder: Path) -> None:
    with ModelDouble(answering(TWO)) as double:
        pass
    findings, _ = check(double, folder)
    name, finding = failure(findings)
    assert name == "endpoint"
    assert "nothing answers" in finding.message
    assert "hopnode model launch" in finding.mend
    assert findings["a turn"] == Finding("off", "not tried, since `endpoint` failed")


def test_an_address_without_its_end_is_told_from_a_server_that_is_no_model_server(folder: Path) -> None:
    with ModelDouble(answering(TWO)) as double:
        _, finding = failure(check(double, folder, chat_url=double.url.removesuffix("/v1"))[0])
        assert "ends in /v1" in finding.mend
        double.gets["/v1/models"] = {"hello": "world"}
        _, finding = failure(check(double, folder)[0])
        assert "is no OpenAI-compatible model server" in finding.message


def test_a_wrong_key_is_named_by_its_setting_and_not_shown(folder: Path) -> None:
    with ModelDouble(answering(TWO), key="right") as double:
        name, finding = failure(check(double, folder, chat_api_key="wrong-secret")[0])
        assert (name, "HOPNODE_CHAT_API_KEY" in finding.mend) == ("endpoint", True)
        assert "wrong-secret" not in finding.message + finding.mend
        assert check(double, folder, chat_api_key="right")[0]["a turn"].state == "ok"


def test_a_wrong_name_is_answered_with_those_that_there_are(folder: Path) -> None:
    with ModelDouble(answering(TWO)) as double:
        name, finding = failure(check(double, folder, chat_model="chromadb/context-1")[0])
    assert (name, finding.message) == ("model name", "chromadb/context-1 is not served; what is: context-1")
    assert "--served-model-name chromadb/context-1" in finding.mend


def test_a_small_window_fails_and_the_turn_is_tried_all_the_same(folder: Path) -> None:
    with ModelDouble(answering(TWO), models=[{"id": "context-1", "max_model_len": 8_192}]) as double:
        findings, _ = check(double, folder)
    name, finding = failure(findings)
    assert (name, "--max-model-len 32768" in finding.mend) == ("window", True)
    assert findings["a turn"].state == "ok"


def test_an_old_vllm_and_an_untold_window_are_warnings_and_no_vllm_is_none(folder: Path) -> None:
    with ModelDouble(answering(TWO), version="0.9.2", models=[{"id": "context-1"}]) as double:
        findings, _ = check(double, folder)
        assert (findings["vLLM"].state, findings["window"].state) == ("warning", "warning")
        del double.gets["/version"]
        assert check(double, folder)[0]["vLLM"].state == "off"


@pytest.mark.parametrize(
    ("greeting", "words", "mend"),
    [
        ((200, {"choices": [{"text": "assistant"}], "usage": {"prompt_tokens": 5}}), "no token ids", "context-1-chat"),
        ((200, {"choices": [{"token_ids": [5]}], "usage": {"prompt_tokens": 40}}), "5 ids counted as 40", "vLLM"),
        ((400, {"error": {"message": "Token id 200008 is out of vocabulary"}}), "no Context-1", "generic"),
        ((404, {"detail": "Not Found"}), "status 404", "context-1-chat"),
    ],
)
def test_a_server_that_cannot_talk_in_token_ids_is_told_from_one_with_another_model(
    folder: Path, greeting: tuple[int, Any], words: str, mend: str
) -> None:
    with ModelDouble(lambda path, body: greeting) as double:
        name, finding = failure(check(double, folder)[0])
    assert name == "token ids"
    assert words in finding.message
    assert mend in finding.mend


@pytest.mark.parametrize(
    ("turn", "words", "mend"),
    [
        ((400, {"error": {"message": NO_PARSER, "type": "BadRequestError"}}), "without a tool parser", "openai_gptoss"),
        (say("<|channel|>commentary to=functions.search_corpus<|message|>{"), "the model's format", "openai_gptoss"),
        (say("The Ganges, I believe."), "it wrote: The Ganges", "trained for this profile"),
        (say(""), "made no tool call", "trained for this profile"),
        (replace(say(""), completion_tokens=54), "54 tokens, and the server handed on neither", "openai_gptoss"),
        (use(("browse", {"url": "x"})), "a tool that there is not: browse", "trained for this profile"),
    ],
)
def test_a_turn_without_a_call_is_explained(folder: Path, turn: Answer, words: str, mend: str) -> None:
    with ModelDouble(answering(turn)) as double:
        name, finding = failure(check(double, folder, "generic")[0])
    assert name == "a turn"
    assert words in finding.message
    assert mend in finding.mend


def test_a_list_at_the_first_turn_is_no_call_and_a_single_call_is_enough(folder: Path) -> None:
    with ModelDouble(answering(concluded("d1_0"))) as double:
        assert failure(check(double, folder)[0])[0] == "a turn"
        double.answer = answering(call("search_corpus", {"query": "Moonrise"}))
        assert check(double, folder)[0]["a turn"].state == "ok"


def test_a_turn_that_takes_too_long_names_the_limit(folder: Path) -> None:
    late = Event()

    def answer(path: str, body: Mapping[str, Any]) -> Answer:
        late.wait(30)
        return 503, {}

    with ModelDouble(answer) as double:
        _, finding = failure(check(double, folder, "generic", chat_timeout_seconds=0.2)[0])
        late.set()
    assert "HOPNODE_CHAT_TIMEOUT_SECONDS" in finding.mend
