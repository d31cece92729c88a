"""Collections over HTTP."""

from fastapi import APIRouter, Response

from hopnode.node_service.http.dependencies import (
    CollectionsReader,
    CollectionsWriter,
    CurrentNode,
    Db,
    NodeRoute,
    OwnCollection,
    OwnCorpus,
)
from hopnode.node_service.http.problems import FieldError, InvalidFields, refusals
from hopnode.node_service.schemas.base import (
    CollectionChange,
    CollectionCreate,
    CollectionRead,
    CollectionWithStats,
    Page,
    StatsRead,
)
from hopnode.worker.corpus.corpus import Corpus
from hopnode.worker.settings import WorkerSettings
from hopnode.worker.store import collections
from hopnode.worker.store.collections import Collection

router = APIRouter(route_class=NodeRoute, tags=["collections"])


@router.post(
    "/v1/collections", status_code=201, summary="Create a collection", responses=refusals("conflict", "too-large")
)
def create_collection(
    identity: CollectionsWriter, body: CollectionCreate, node: CurrentNode, db: Db, response: Response
) -> CollectionRead:
    """Makes an empty collection. Its embedder is chosen now, or by the node when the first documents come."""
    made = collections.create_collection(
        db,
        identity.workspace.id,
        body.name,
        description=body.description,
        embedder=_embedder_id(body.embedder, node.runtime.settings),
        dense_weight=body.dense_weight,
        metadata=body.metadata,
    )
    response.headers["Location"] = f"/v1/collections/{made.name}"
    return CollectionRead.model_validate(made)


@router.get("/v1/collections", summary="List collections")
def list_collections(identity: CollectionsReader, db: Db) -> Page[CollectionRead]:
    """All collections of the workspace, by name."""
    return Page[CollectionRead](
        items=[
            CollectionRead.model_validate(found) for found in collections.list_collections(db, identity.workspace.id)
        ]
    )


@router.get("/v1/collections/{name}", summary="Get a collection", responses=refusals("not-found"))
def get_collection(_: CollectionsReader, collection: OwnCollection, corpus: OwnCorpus) -> CollectionWithStats:
    """A collection and how much it holds."""
    return _with_stats(collection, corpus)


@router.patch("/v1/collections/{name}", summary="Change a collection", responses=refusals("not-found", "too-large"))
def change_collection(
    identity: CollectionsWriter, collection: OwnCollection, body: CollectionChange, db: Db, corpus: OwnCorpus
) -> CollectionWithStats:
    """Changes what the body names and leaves the rest."""
    changed = collections.update_collection(db, identity.workspace.id, collection.name, **body.given())
    return _with_stats(changed, corpus)


@router.delete(
    "/v1/collections/{name}",
    status_code=204,
    response_class=Response,
    summary="Delete a collection",
    responses=refusals("not-found"),
)
def delete_collection(identity: CollectionsWriter, collection: OwnCollection, db: Db, corpus: OwnCorpus) -> None:
    """Deletes a collection with its documents and sources; searches that ran keep their results."""
    corpus.drop_collection(collection)  # first, so that a call that failed half-way can be repeated
    collections.delete_collection(db, identity.workspace.id, collection.name)
    corpus.drop_collection(collection)  # what a sync put in between the two; later ones find no collection


def _embedder_id(name: str | None, settings: WorkerSettings) -> str | None:
    """The id that the collection is bound to. `http` stands for the one model that the node is set up with."""
    if name != "http":
        return name
    if not (settings.embedder_url and settings.embedder_model):
        message = "This node has no embeddings API: HOPNODE_EMBEDDER_URL and HOPNODE_EMBEDDER_MODEL are not set"
        raise InvalidFields([FieldError(**{"in": "body"}, field="embedder", message=message, code="not_configured")])
    return f"http:{settings.embedder_model}"


def _with_stats(collection: Collection, corpus: Corpus) -> CollectionWithStats:
    stats = StatsRead.model_validate(corpus.stats(collection))
    return CollectionWithStats(**CollectionRead.model_validate(collection).model_dump(), stats=stats)
