"""Changing the secret key while the node runs: a new key if the last change is complete, then every secret under the newest."""

from dataclasses import dataclass
from uuid import uuid4

from hopnode.worker.errors import Conflict
from hopnode.worker.store.database import Database
from hopnode.worker.store.jobs.leases import drop_lease, try_lease
from hopnode.worker.store.secrets.vault import Vault

_LEASE = "secret-rotation"
_LEASE_SECONDS = 600.0


@dataclass(frozen=True)
class Rotation:
    """What one rotation did: the id of the key that seals now, whether it was made just now, and how many secrets moved."""

    key_id: str
    made: bool
    resealed: int


def rotate(db: Database, vault: Vault) -> Rotation:
    """Seals all secrets under the newest key; makes that key first, unless an earlier rotation was broken off before its end.

    Keys of a setting are the operator's: none is made, and the first one of the setting is the newest. Older keys stay where
    they are, for backups need them. Raises Conflict while another process rotates, ConfigurationError without any key.
    """
    token = uuid4().hex
    if not try_lease(db, _LEASE, token, _LEASE_SECONDS):
        raise Conflict("Another process rotates the secret keys now; wait until it is done.")
    try:
        resealed = vault.reseal()
        made = vault.keyring.own and not resealed
        if made:
            vault.keyring.add_newest()
            resealed = vault.reseal()
        return Rotation(vault.keyring.newest().id, made, resealed)
    finally:
        drop_lease(db, _LEASE, token)
