"""The error that a model server tells is found in every shape that servers use, and nothing else is taken for one."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hopnode.worker.inference.chat_wire import completion_body, read_completion
from hopnode.worker.inference.messages import Completion, Message, ToolCall
from hopnode.worker.inference.remote_error import RemoteError, error_of


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (
            {
                "error": {
                    "message": "too long",
                    "type": "invalid",
                    "code": "context_length_exceeded",
                    "param": "messages",
                }
            },
            RemoteError("too long", "invalid", "context_length_exceeded", "messages"),
        ),
        ({"error": {"message": "x", "code": 400, "param": None}}, RemoteError("x", "", "400", "")),
        ({"error": "no such model"}, RemoteError("no such model")),
        (
            {"object": "error", "message": "flat", "type": "BadRequestError", "code": 400},
            RemoteError("flat", "BadRequestError", "400"),
        ),
        ({"detail": "Not Found"}, RemoteError()),
        ({"error": ["a", "list"]}, RemoteError()),
        ({"error": None}, RemoteError()),
        ({}, RemoteError()),
    ],
)
def test_an_error_is_found_under_its_name_as_a_text_or_flat(body: object, error: RemoteError) -> None:
    assert error_of(json.dumps(body).encode()) == error


@pytest.mark.parametrize("content", ["<html>502 Bad Gateway</html>", "upstream timed out", "[1, 2]", '"text"', ""])
def test_what_is_no_object_is_told_as_it_stands(content: str) -> None:
    assert error_of(content.encode()) == RemoteError(content)


def test_a_long_page_of_a_proxy_is_cut_and_broken_bytes_do_no_harm() -> None:
    assert error_of(b"x" * 10_000) == RemoteError("x" * 300)
    assert error_of("é".encode("latin-1") + b" oops").message == "\ufffd oops"


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_have_an_error_of_texts(content: bytes) -> None:
    error = error_of(content)
    assert all(isinstance(one, str) for one in (error.message, error.type, error.code, error.param))
    assert len(error.message) <= 300


WORDS = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)
CALLS = st.builds(ToolCall, WORDS.filter(bool), WORDS.filter(bool), WORDS)
COMPLETIONS = st.builds(
    Completion,
    message=st.builds(
        Message,
        role=st.just("assistant"),
        content=WORDS,
        tool_calls=st.lists(CALLS, max_size=3).map(tuple),
        reasoning=st.none() | WORDS.filter(bool),
    ),
    finish_reason=st.sampled_from(["stop", "length", "tool_calls"]),
    prompt_tokens=st.integers(0, 10**6),
    completion_tokens=st.integers(0, 10**6),
)


@settings(max_examples=60, deadline=None)
@given(COMPLETIONS)
def test_any_answer_that_is_written_is_read_back_as_it_was(completion: Completion) -> None:
    read, _ = read_completion(json.dumps(completion_body(completion, "m")).encode())
    assert read == completion


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b'{"choices": []}', "1 defects"),
        (b'{"error": {"message": "out of memory"}}', "out of memory"),
        (b"<html>", "<html>"),
        (b'{"choices": [{"message": {"content": 7}}]}', "defects"),
    ],
)
def test_an_answer_without_a_completion_says_what_came_instead(content: bytes, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        read_completion(content)
