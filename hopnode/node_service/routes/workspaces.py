"""Tenants and keys over HTTP. A key can pass on only what it holds, so no scope can be won by making keys."""

from collections.abc import Iterable
from importlib.metadata import version
from typing import Annotated

from fastapi import APIRouter, Path, Query, Response

from hopnode.node_service.http.auth import Identity
from hopnode.node_service.http.dependencies import AnyKey, Db, NodeAdmin, NodeRoute, WorkspaceAdmin
from hopnode.node_service.http.problems import refusals
from hopnode.node_service.schemas.base import (
    KeyCreate,
    KeyCreated,
    KeyRead,
    KeyRotate,
    Page,
    WhoamiRead,
    WorkspaceCreate,
    WorkspaceCreated,
    WorkspaceRead,
)
from hopnode.worker.errors import Forbidden
from hopnode.worker.store import workspaces
from hopnode.worker.store.database import Database
from hopnode.worker.store.workspaces import SCOPES

NODE_SCOPE = "node:admin"
KeyId = Annotated[str, Path(max_length=64, description="Id of the key.")]
router = APIRouter(route_class=NodeRoute, tags=["workspaces and keys"])


@router.get("/v1/whoami", summary="Who am I")
def whoami(identity: AnyKey) -> WhoamiRead:
    """The workspace and the scopes of the key that the request came with: a cheap way to try a key."""
    return WhoamiRead(
        workspace=WorkspaceRead.model_validate(identity.workspace),
        key=KeyRead.model_validate(identity.key),
        scopes=sorted(identity.key.scopes),
        version=version("hopnode"),
    )


@router.post(
    "/v1/workspaces", status_code=201, summary="Create a workspace", responses=refusals("conflict", "too-large")
)
def create_workspace(_: NodeAdmin, body: WorkspaceCreate, db: Db) -> WorkspaceCreated:
    """Makes a tenant and the first key of it, which is shown this one time. Needs the scope `node:admin`."""
    workspace = workspaces.create_workspace(db, body.name)
    scopes = [scope for scope in SCOPES if scope != NODE_SCOPE]
    key = _new_key(db, workspace.id, KeyCreate(name="first key", scopes=scopes))
    return WorkspaceCreated(**WorkspaceRead.model_validate(workspace).model_dump(), key=key)


@router.get("/v1/workspaces", summary="List workspaces")
def list_workspaces(_: NodeAdmin, db: Db) -> Page[WorkspaceRead]:
    """All tenants of the node by name. Needs the scope `node:admin`."""
    return Page[WorkspaceRead](items=[WorkspaceRead.model_validate(found) for found in workspaces.list_workspaces(db)])


@router.post("/v1/keys", status_code=201, summary="Create a key", responses=refusals("too-large"))
def create_key(identity: WorkspaceAdmin, body: KeyCreate, db: Db) -> KeyCreated:
    """Makes a key of the caller's workspace and shows it this one time. Two live keys allow a change without a gap."""
    _check_grant(identity, body.scopes)
    return _new_key(db, identity.workspace.id, body)


@router.get("/v1/keys", summary="List keys")
def list_keys(identity: WorkspaceAdmin, db: Db) -> Page[KeyRead]:
    """All keys of the caller's workspace, the oldest first, with those that open nothing any more."""
    return Page[KeyRead](items=[KeyRead.model_validate(key) for key in workspaces.list_keys(db, identity.workspace.id)])


@router.delete(
    "/v1/keys/{key_id}",
    status_code=204,
    response_class=Response,
    summary="Revoke a key",
    responses=refusals("not-found", "conflict"),
)
def revoke_key(
    identity: WorkspaceAdmin,
    key_id: KeyId,
    db: Db,
    force: Annotated[bool, Query(description="Also where it is the last key with the scope `admin`.")] = False,
) -> None:
    """Closes a key from this moment on; nothing opens it again."""
    workspaces.revoke_key(db, identity.workspace.id, key_id, even_last=force)


@router.post(
    "/v1/keys/{key_id}/rotate",
    status_code=201,
    summary="Rotate a key",
    responses=refusals("not-found", "conflict", "too-large"),
)
def rotate_key(identity: WorkspaceAdmin, key_id: KeyId, body: KeyRotate, db: Db) -> KeyCreated:
    """Makes a key with the same name, scopes and end, shown this one time; the old one ends after the grace."""
    _check_grant(identity, workspaces.get_key(db, identity.workspace.id, key_id).scopes)
    key, token = workspaces.rotate_key(db, identity.workspace.id, key_id, grace_seconds=body.grace_seconds)
    return KeyCreated(**KeyRead.model_validate(key).model_dump(), token=token)


def _check_grant(identity: Identity, scopes: Iterable[str]) -> None:
    if beyond := sorted(set(scopes) - identity.key.scopes):
        raise Forbidden(f"A key can pass on only scopes that it holds itself, and this one lacks {', '.join(beyond)}.")


def _new_key(db: Database, workspace_id: str, body: KeyCreate) -> KeyCreated:
    expires_at = body.expires_at.timestamp() if body.expires_at else None
    key, token = workspaces.create_key(db, workspace_id, body.name, body.scopes, expires_at)
    return KeyCreated(**KeyRead.model_validate(key).model_dump(), token=token)
