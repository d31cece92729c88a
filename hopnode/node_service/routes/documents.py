"""Documents over HTTP: put by key, list, get, delete. Parsing and indexing happen behind the corpus's door."""

import base64
import binascii
from collections.abc import AsyncIterator
from tempfile import SpooledTemporaryFile
from typing import IO, Annotated, Any, TypeVar, cast
from urllib.parse import quote

from fastapi import APIRouter, Depends, Header, Query, Request, Response
from pydantic import BaseModel, ValidationError

from hopnode.node_service.http.dependencies import (
    LIMIT_DEFAULT,
    CollectionsReader,
    CollectionsWriter,
    CurrentNode,
    Cursor,
    DocumentKey,
    Limit,
    NodeRoute,
    OwnCollection,
    OwnCorpus,
    TrueOrFalse,
    UploadRoute,
)
from hopnode.node_service.http.paging import decode_cursor, encode_cursor
from hopnode.node_service.http.problems import FieldError, InvalidFields, field_errors, refusals
from hopnode.node_service.schemas.base import Page
from hopnode.node_service.schemas.documents import (
    BatchDocument,
    BatchOutcome,
    DocumentBatch,
    DocumentRead,
    DocumentText,
    DocumentWithText,
    OutcomeRead,
)
from hopnode.worker.corpus.corpus import Corpus
from hopnode.worker.corpus.records import IngestOutcome, NewDocument
from hopnode.worker.errors import DocumentRejected, NotFound
from hopnode.worker.store.collections import Collection

router = APIRouter(route_class=NodeRoute, tags=["documents"])
uploads = APIRouter(route_class=UploadRoute, tags=["documents"])

B = TypeVar("B", bound=BaseModel)

_BYTES_IN_MEMORY = 1_000_000
_UPLOAD_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "The text in JSON, or the raw bytes of a file under any other content type; a JSON file goes as "
        "`application/octet-stream`, its key or `filename` says what it is.",
        "content": {
            "application/json": {"schema": {"$ref": "#/components/schemas/DocumentText"}},
            "application/octet-stream": {"schema": {"type": "string", "format": "binary"}},
        },
    }
}


_BATCH_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/DocumentBatch"}}},
    }
}


async def _body(request: Request) -> AsyncIterator[IO[bytes]]:
    """The whole body, beyond a megabyte on disk: uploads that wait for their turn take no memory.

    `UploadRoute` has put a limit on it.
    """
    with SpooledTemporaryFile(max_size=_BYTES_IN_MEMORY) as file:
        async for part in request.stream():
            file.write(part)
        file.seek(0)
        yield cast(IO[bytes], file)


RawBody = Annotated[IO[bytes], Depends(_body)]


@uploads.put(
    "/v1/collections/{name}/documents/{key:path}",
    summary="Put a document",
    openapi_extra=_UPLOAD_BODY,
    responses={201: {"model": OutcomeRead, "description": "The document is new."}}
    | refusals("not-found", "too-large", "document-rejected", "invalid-request"),
)
async def put_document(
    _: CollectionsWriter,
    collection: OwnCollection,
    key: DocumentKey,
    corpus: OwnCorpus,
    node: CurrentNode,
    body: RawBody,
    response: Response,
    content_type: Annotated[str | None, Header(max_length=255, include_in_schema=False)] = None,
    title: Annotated[str | None, Query(max_length=1000, description="For raw bytes; else the file's own.")] = None,
    url: Annotated[str | None, Query(max_length=2048, description="For raw bytes: where people find it.")] = None,
    filename: Annotated[
        str | None, Query(max_length=255, description="For raw bytes; else the end of the key.")
    ] = None,
) -> OutcomeRead:
    """Stores a document under its key, or replaces it; chunks whose text stays are kept. Answers when it can be found.

    A document that cannot be parsed is answered with the problem `document-rejected`, and what was stored under the key
    before stays.
    """

    def store() -> tuple[IngestOutcome, bool]:
        content = body.read()
        if _media_type(content_type) == "application/json":
            return _store(corpus, collection, _from_json(key, content))
        name = filename or _last_part(key)
        raw = NewDocument(key, raw=content, media_type=content_type, filename=name, title=title, url=url)
        return _store(corpus, collection, raw)

    outcome, is_new = await node.apart(store)
    if is_new:
        response.status_code = 201
        response.headers["Location"] = f"/v1/collections/{collection.name}/documents/{quote(key)}"
    return OutcomeRead.model_validate(outcome)


@uploads.post(
    "/v1/collections/{name}/documents:batch",
    summary="Put several documents",
    openapi_extra=_BATCH_BODY,
    responses=refusals("not-found", "too-large"),
)
async def put_documents(
    _: CollectionsWriter, collection: OwnCollection, body: RawBody, corpus: OwnCorpus, node: CurrentNode
) -> BatchOutcome:
    """Stores up to 100 documents, embedded together; each stands for itself, and a failed one is told in its outcome."""

    def store() -> list[IngestOutcome]:
        batch = _parsed(DocumentBatch, body.read())
        return corpus.ingest(collection, [_from_batch(one, place) for place, one in enumerate(batch.documents)])

    outcomes = await node.apart(store)
    return BatchOutcome(outcomes=[OutcomeRead.model_validate(outcome) for outcome in outcomes])


@router.get(
    "/v1/collections/{name}/documents",
    summary="List documents",
    responses=refusals("not-found", "invalid-request"),
)
def list_documents(
    _: CollectionsReader,
    collection: OwnCollection,
    corpus: OwnCorpus,
    limit: Limit = LIMIT_DEFAULT,
    cursor: Cursor = None,
) -> Page[DocumentRead]:
    """The documents of a collection without their text, by key."""
    found = corpus.documents(collection, limit=limit + 1, after=decode_cursor(cursor))
    more = len(found) > limit
    return Page[DocumentRead](
        items=[DocumentRead.model_validate(document) for document in found[:limit]],
        next_cursor=encode_cursor(found[limit - 1].key) if more else None,
    )


@router.get("/v1/collections/{name}/documents/{key:path}", summary="Get a document", responses=refusals("not-found"))
def get_document(
    _: CollectionsReader,
    collection: OwnCollection,
    key: DocumentKey,
    corpus: OwnCorpus,
    text: Annotated[TrueOrFalse, Query(description="Whether to send the stored text too.")] = False,
) -> DocumentWithText:
    """The record of a document; with `?text=true` also the text that passages cite by character offsets."""
    document = DocumentRead.model_validate(corpus.document(collection, key))
    return DocumentWithText(**document.model_dump(), text=corpus.document_text(document.id) if text else None)


@router.delete(
    "/v1/collections/{name}/documents/{key:path}",
    status_code=204,
    response_class=Response,
    summary="Delete a document",
    responses=refusals("not-found"),
)
def delete_document(_: CollectionsWriter, collection: OwnCollection, key: DocumentKey, corpus: OwnCorpus) -> None:
    """Deletes a document; from the answer on no search finds it."""
    if not corpus.delete(collection, [key]):
        raise NotFound(f"There is no document `{key}` in the collection `{collection.name}`.")


def _store(corpus: Corpus, collection: Collection, document: NewDocument) -> tuple[IngestOutcome, bool]:
    """The outcome, and whether the key is new. Raises DocumentRejected for a document that cannot be stored."""
    outcome = corpus.ingest(collection, [document])[0]
    if outcome.status == "failed":
        raise DocumentRejected(outcome.reason or "unknown", outcome.message or "The document cannot be stored.")
    return outcome, outcome.status == "stored" and corpus.document(collection, document.key).version == 1


def _last_part(key: str) -> str:
    """What stands for a file name where none is given: parsers and titles go by it."""
    return key.rsplit("/", 1)[-1]


def _media_type(content_type: str | None) -> str:
    return (content_type or "").partition(";")[0].strip().lower()


def _parsed(form: type[B], body: bytes) -> B:
    """The body in this form. Raises InvalidFields."""
    try:
        return form.model_validate_json(body)
    except ValidationError as error:
        raise InvalidFields(field_errors(error.errors(), place="body")) from error


def _from_json(key: str, body: bytes) -> NewDocument:
    given = _parsed(DocumentText, body)
    return NewDocument(
        key,
        text=given.text,
        media_type=given.media_type,
        filename=_last_part(key),
        title=given.title,
        url=given.url,
        metadata=given.metadata,
    )


def _from_batch(given: BatchDocument, place: int) -> NewDocument:
    raw = None
    if given.base64 is not None:
        try:
            raw = base64.b64decode(given.base64, validate=True)
        except (binascii.Error, ValueError) as error:
            field = f"documents.{place}.base64"
            wrong = FieldError(**{"in": "body"}, field=field, message="This is not base64", code="bad_base64")
            raise InvalidFields([wrong]) from error
    return NewDocument(
        given.key,
        text=given.text,
        raw=raw,
        media_type=given.media_type,
        filename=given.filename or _last_part(given.key),
        title=given.title,
        url=given.url,
        metadata=given.metadata,
    )
