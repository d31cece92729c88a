"""The frames between a parser pool and its child: what is sent arrives whole, and what is cut or too long does not."""

import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hopnode.worker.corpus.parsing.wire import Reply, Request, document_of, receive, reply_of, send
from hopnode.worker.corpus.records import PageSpan, ParsedDocument

TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=40)
PAGES = st.lists(st.builds(PageSpan, st.integers(1, 99), st.integers(0, 99), st.integers(0, 99)), max_size=4)
DOCUMENTS = st.builds(
    ParsedDocument,
    text=TEXTS,
    kind=st.sampled_from(["text", "markdown", "code:python"]),
    title=TEXTS,
    pages=PAGES.map(tuple),
    warnings=st.lists(TEXTS, max_size=3).map(tuple),
)


def frame(header: Request | Reply, body: bytes = b"") -> bytes:
    stream = io.BytesIO()
    send(stream, header, body)
    return stream.getvalue()


@settings(max_examples=40, deadline=None)
@given(documents=st.lists(DOCUMENTS, max_size=3), last=st.booleans())
def test_documents_cross_one_after_the_other_as_they_were(documents: list[ParsedDocument], last: bool) -> None:
    stream = io.BytesIO(b"".join(frame(*reply_of(one, last=last)) for one in documents))
    for document in documents:
        received = receive(stream, 1_000_000)
        assert received is not None
        reply = Reply.model_validate_json(received[0])
        assert (document_of(reply, received[1]), reply.last) == (document, last)
    assert receive(stream, 1_000_000) is None


def test_the_bytes_of_a_document_cross_unchanged() -> None:
    body = bytes(range(256)) * 40
    received = receive(io.BytesIO(frame(Request(media_type=None, filename="a\n한국.bin"), body)), len(body))
    assert received is not None
    assert received[1] == body
    assert Request.model_validate_json(received[0]).filename == "a\n한국.bin"


def test_a_frame_that_ends_early_is_no_frame_wherever_it_is_cut() -> None:
    whole = frame(Reply(kind="text", title="t"), b"some text")
    assert [receive(io.BytesIO(whole[:size]), 1_000) for size in range(len(whole))] == [None] * len(whole)


def test_a_body_of_the_most_bytes_passes_and_one_more_is_refused_unread() -> None:
    assert receive(io.BytesIO(frame(Reply(), b"x" * 100)), 100) is not None
    stream = io.BytesIO(frame(Reply(), b"x" * 101))
    with pytest.raises(ValueError, match="too long"):
        receive(stream, 100)
    assert stream.tell() == 8, "only the two lengths were read"


@pytest.mark.parametrize("header", [b'{"code": "import os"}', b'{"text": "x", "media_type": null}', b"[]", b""])
def test_a_header_of_another_form_is_not_taken(header: bytes) -> None:
    with pytest.raises(ValueError, match="validation error"):
        Request.model_validate_json(header)
    with pytest.raises(ValueError, match="validation error"):
        Reply.model_validate_json(header)
