"""Sources over HTTP. A configuration is tried on the outside world before it is kept; what a sync does is not known here."""

from collections.abc import Mapping

from fastapi import APIRouter, Response
from pydantic import JsonValue, ValidationError

from hopnode.connectors import registry
from hopnode.connectors.errors import ConnectorError, InvalidConfig
from hopnode.node_service.http.dependencies import (
    CurrentNode,
    Db,
    Node,
    NodeRoute,
    OwnCollection,
    OwnSource,
    SourcesReader,
    SourcesWriter,
)
from hopnode.node_service.http.problems import FieldError, InvalidFields, SourceCheckFailed, field_errors, refusals
from hopnode.node_service.schemas.base import Page
from hopnode.node_service.schemas.sources import SourceChange, SourceCreate, SourceRead
from hopnode.worker.store import collections
from hopnode.worker.store.database import Database
from hopnode.worker.store.sources import sources
from hopnode.worker.store.sources.secret_config import changed_config, given_config, take_apart
from hopnode.worker.store.sources.sources import Source

router = APIRouter(route_class=NodeRoute, tags=["sources"])


@router.post(
    "/v1/collections/{name}/sources",
    status_code=201,
    summary="Create a source",
    responses=refusals("not-found", "conflict", "source-check-failed", "too-large"),
)
async def create_source(
    identity: SourcesWriter,
    collection: OwnCollection,
    body: SourceCreate,
    node: CurrentNode,
    db: Db,
    response: Response,
) -> SourceRead:
    """Keeps a source after its configuration was found good and a look at it succeeded; the first sync is a call of its own."""
    workspace_id = identity.workspace.id

    def try_and_keep() -> Source:
        whole = _given(body.kind, body.config)
        _try(node, body.kind, whole)
        config, hidden = take_apart(node.runtime.vault, body.kind, whole)
        given = body.model_dump(exclude={"config"})
        return sources.create_source(db, workspace_id, collection.id, config=config, hidden=hidden, **given)

    made = await node.apart(try_and_keep)
    response.headers["Location"] = f"/v1/sources/{made.id}"
    return SourceRead.of(made, collection.name)


@router.get("/v1/collections/{name}/sources", summary="List sources", responses=refusals("not-found"))
def list_sources(identity: SourcesReader, collection: OwnCollection, db: Db) -> Page[SourceRead]:
    """The sources of a collection, by name."""
    found = sources.list_sources(db, identity.workspace.id, collection.id)
    return Page[SourceRead](items=[SourceRead.of(source, collection.name) for source in found])


@router.get("/v1/sources/{source_id}", summary="Get a source", responses=refusals("not-found"))
def get_source(_: SourcesReader, source: OwnSource, db: Db) -> SourceRead:
    """A source as it is configured."""
    return _read(db, source)


@router.patch(
    "/v1/sources/{source_id}",
    summary="Change a source",
    responses=refusals("not-found", "conflict", "source-check-failed", "too-large"),
)
async def change_source(
    identity: SourcesWriter, source: OwnSource, body: SourceChange, node: CurrentNode, db: Db
) -> SourceRead:
    """Changes what the body names; a new configuration is tried first, and the next sync starts from nothing."""

    def try_and_change() -> SourceRead:
        changes, hidden = body.given(), None
        if "config" in body.model_fields_set:
            whole = _changed(node, source, body.config)
            _try(node, source.kind, whole)
            changes["config"], hidden = take_apart(node.runtime.vault, source.kind, whole)
        return _read(db, sources.update_source(db, identity.workspace.id, source.id, **changes, hidden=hidden))

    return await node.apart(try_and_change)


@router.delete(
    "/v1/sources/{source_id}",
    status_code=204,
    response_class=Response,
    summary="Delete a source",
    responses=refusals("not-found"),
)
def delete_source(identity: SourcesWriter, source: OwnSource, db: Db) -> None:
    """Forgets a source and its syncs. The documents that it brought stay in the collection."""
    sources.delete_source(db, identity.workspace.id, source.id)


def _read(db: Database, source: Source) -> SourceRead:
    collection = collections.get_collection_by_id(db, source.workspace_id, source.collection_id)
    return SourceRead.of(source, collection.name)


def _wrong_fields(error: InvalidConfig) -> list[FieldError]:
    """By field where the connector's schema found them."""
    if isinstance(cause := error.__cause__, ValidationError):
        return field_errors(cause.errors(), place="body", prefix="config")
    return [FieldError(**{"in": "body"}, field="config", message=str(error), code="invalid_config")]


def _given(kind: str, config: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    try:
        return given_config(kind, config)
    except InvalidConfig as error:
        raise InvalidFields(_wrong_fields(error)) from error


def _changed(node: Node, source: Source, config: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    try:
        return changed_config(node.runtime.vault, source, config)
    except InvalidConfig as error:
        raise InvalidFields(_wrong_fields(error)) from error


def _try(node: Node, kind: str, config: Mapping[str, JsonValue]) -> None:
    """Raises InvalidFields for a configuration that cannot work, SourceCheckFailed for one that does not work now."""
    try:
        connector = registry.make(kind, config, node.runtime.egress)
    except InvalidConfig as error:
        raise InvalidFields(_wrong_fields(error)) from error
    try:
        result = connector.check()
    except ConnectorError as error:
        raise SourceCheckFailed(str(error)) from error
    finally:
        connector.close()
    if not result.ok:
        raise SourceCheckFailed(result.message)
