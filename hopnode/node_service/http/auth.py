"""Who is calling: bearer keys and their scopes. Knows nothing of what the caller wants."""

from dataclasses import dataclass

from fastapi.security import HTTPBearer

from hopnode.worker.errors import Forbidden, Unauthorized
from hopnode.worker.store import workspaces
from hopnode.worker.store.database import Database
from hopnode.worker.store.workspaces import Key, Workspace

bearer = HTTPBearer(
    scheme_name="key",
    bearerFormat="hn_<id>_<secret>",
    description="A key of one workspace. `hopnode keys create` and `POST /v1/keys` make keys.",
    auto_error=False,
)
"""Only describes the scheme in the OpenAPI document; `identify` is what reads the header."""


@dataclass(frozen=True)
class Identity:
    """The key a request came with and the one workspace it opens."""

    key: Key
    workspace: Workspace


def identify(db: Database, authorization: str | None) -> Identity:
    """The owner of an `Authorization: Bearer …` header. Raises Unauthorized, with the same words for every bad key."""
    scheme, _, token = (authorization or "").partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise Unauthorized("Send the header `Authorization: Bearer hn_…` with a key of this node.")
    key, workspace = workspaces.authenticate(db, token.strip())
    return Identity(key, workspace)


def require(identity: Identity, scope: str) -> None:
    """Raises Forbidden unless the key has `scope`."""
    if scope not in identity.key.scopes:
        raise Forbidden(f"This needs a key with the scope `{scope}`.")
