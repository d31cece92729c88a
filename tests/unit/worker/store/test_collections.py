"""Collections on both engines: names, changes, the binding to an embedder, and the walls between workspaces."""

import pytest

from hopnode.worker.errors import Conflict, InvalidRequest, NotFound
from hopnode.worker.store import collections as store
from hopnode.worker.store.collections import Collection
from hopnode.worker.store.database import Database
from hopnode.worker.store.workspaces import Workspace, create_workspace


@pytest.fixture
def acme(database: Database) -> Workspace:
    return create_workspace(database, "acme")


@pytest.fixture
def other(database: Database) -> Workspace:
    return create_workspace(database, "other")


@pytest.fixture
def docs(database: Database, acme: Workspace) -> Collection:
    return store.create_collection(
        database,
        acme.id,
        "docs",
        description="Handbuch 手冊 설명서",
        dense_weight=0.25,
        metadata={"team": ["a", 1, None]},
    )


def test_a_collection_comes_back_as_it_was_made(database: Database, acme: Workspace, docs: Collection) -> None:
    assert (docs.name, docs.description, docs.dense_weight) == ("docs", "Handbuch 手冊 설명서", 0.25)
    assert docs.metadata == {"team": ["a", 1, None]}
    assert (docs.embedder, docs.dimension) == (None, None)
    assert store.get_collection(database, acme.id, "docs") == docs
    assert store.get_collection_by_id(database, acme.id, docs.id) == docs


def test_collections_are_listed_by_name(database: Database, acme: Workspace, docs: Collection) -> None:
    first = store.create_collection(database, acme.id, "api")
    assert store.list_collections(database, acme.id) == [first, docs]


def test_nothing_of_a_workspace_is_seen_or_changed_from_another(
    database: Database, acme: Workspace, other: Workspace, docs: Collection
) -> None:
    assert store.list_collections(database, other.id) == []
    for attempt in (
        lambda: store.get_collection(database, other.id, "docs"),
        lambda: store.get_collection_by_id(database, other.id, docs.id),
        lambda: store.update_collection(database, other.id, "docs", description="mine"),
        lambda: store.update_collection(database, other.id, "docs"),
        lambda: store.delete_collection(database, other.id, "docs"),
    ):
        with pytest.raises(NotFound):
            attempt()
    assert store.get_collection(database, acme.id, "docs") == docs


def test_an_unknown_workspace_is_not_found(database: Database) -> None:
    for attempt in (
        lambda: store.create_collection(database, "none", "docs"),
        lambda: store.list_collections(database, "none"),
        lambda: store.get_collection(database, "none", "docs"),
    ):
        with pytest.raises(NotFound):
            attempt()


def test_a_name_is_taken_once_in_a_workspace_and_free_in_the_next(
    database: Database, acme: Workspace, other: Workspace, docs: Collection
) -> None:
    with pytest.raises(Conflict, match="docs"):
        store.create_collection(database, acme.id, "docs")
    assert store.create_collection(database, other.id, "docs").id != docs.id


@pytest.mark.parametrize("name", ["", "Docs", "a b", ".a", "a/b", "a" * 64, "é", "a\n", "a\0"])
def test_a_name_follows_the_rule(sqlite_database: Database, name: str) -> None:
    workspace = create_workspace(sqlite_database, "acme")
    with pytest.raises(InvalidRequest, match="63"):
        store.create_collection(sqlite_database, workspace.id, name)
    store.create_collection(sqlite_database, workspace.id, "0a._-" + "b" * 58)


def test_a_name_that_nobody_can_have_is_not_found_or_invalid(database: Database, acme: Workspace) -> None:
    with pytest.raises((NotFound, InvalidRequest)):
        store.get_collection(database, acme.id, "a\0b")


@pytest.mark.parametrize("weight", [-0.1, 1.1, float("nan"), float("inf")])
def test_a_dense_weight_lies_between_zero_and_one(
    database: Database, acme: Workspace, docs: Collection, weight: float
) -> None:
    with pytest.raises(InvalidRequest):
        store.create_collection(database, acme.id, "new", dense_weight=weight)
    with pytest.raises(InvalidRequest):
        store.update_collection(database, acme.id, "docs", dense_weight=weight)
    assert store.list_collections(database, acme.id) == [docs]


@pytest.mark.parametrize("description", ["a\0b", "\udc80", "x" * 10_001])
def test_a_description_is_text_of_bounded_length(database: Database, acme: Workspace, description: str) -> None:
    with pytest.raises(InvalidRequest, match="description"):
        store.create_collection(database, acme.id, "new", description=description)


def test_an_update_changes_only_what_it_names(database: Database, acme: Workspace, docs: Collection) -> None:
    changed = store.update_collection(database, acme.id, "docs", description="new")
    assert (changed.description, changed.dense_weight, changed.metadata) == ("new", 0.25, docs.metadata)
    changed = store.update_collection(database, acme.id, "docs", dense_weight=None, metadata={"b": True})
    assert (changed.description, changed.dense_weight, changed.metadata) == ("new", None, {"b": True})
    assert store.update_collection(database, acme.id, "docs") == changed
    assert store.get_collection(database, acme.id, "docs") == changed


def test_the_first_documents_decide_on_the_embedder(database: Database, acme: Workspace, docs: Collection) -> None:
    bound = store.fix_embedder(database, docs.id, "minilm", 384)
    assert (bound.embedder, bound.dimension) == ("minilm", 384)
    assert store.fix_embedder(database, docs.id, "minilm", 384) == bound
    for embedder, dimension in (("use", 512), ("minilm", 512)):
        with pytest.raises(Conflict, match="minilm"):
            store.fix_embedder(database, docs.id, embedder, dimension)
    assert store.get_collection(database, acme.id, "docs") == bound


def test_an_embedder_that_was_asked_for_cannot_be_replaced_by_the_first_documents(
    database: Database, acme: Workspace
) -> None:
    made = store.create_collection(database, acme.id, "docs", embedder="http:text-embedding-3-small")
    assert (made.embedder, made.dimension) == ("http:text-embedding-3-small", None)
    with pytest.raises(Conflict):
        store.fix_embedder(database, made.id, "minilm", 384)
    assert store.fix_embedder(database, made.id, "http:text-embedding-3-small", 1536).dimension == 1536


def test_auto_leaves_the_embedder_open(database: Database, acme: Workspace) -> None:
    assert store.create_collection(database, acme.id, "docs", embedder="auto").embedder is None


def test_a_collection_that_is_gone_cannot_be_bound(database: Database) -> None:
    with pytest.raises(NotFound):
        store.fix_embedder(database, "none", "minilm", 384)


def test_a_deleted_collection_is_gone_and_its_name_free(database: Database, acme: Workspace, docs: Collection) -> None:
    assert store.delete_collection(database, acme.id, "docs") == docs
    with pytest.raises(NotFound):
        store.get_collection(database, acme.id, "docs")
    with pytest.raises(NotFound):
        store.delete_collection(database, acme.id, "docs")
    assert store.create_collection(database, acme.id, "docs").id != docs.id
