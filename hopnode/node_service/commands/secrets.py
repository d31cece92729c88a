"""The commands `secrets check` and `secrets rotate`: they work on database and data folder, not over HTTP."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from hopnode.node_service.commands.terminal.exits import CommandError
from hopnode.node_service.commands.terminal.invocation import Invocation

if TYPE_CHECKING:
    from hopnode.worker.store.database import Database
    from hopnode.worker.store.secrets.vault import Vault

app = typer.Typer(no_args_is_help=True, help="Look after the stored secrets of sources, and the keys that seal them.")


@app.command()
def check(ctx: typer.Context) -> None:
    """Open every stored secret, show none, and say which keys are in use."""
    with _opened(ctx.obj) as (_, vault):
        keys = vault.keyring.keys()
        state = vault.check()
    for key in keys:
        typer.echo(f"key {key.id}: seals {state.by_key.get(key.id, 0)} secrets")
    for key_id in sorted(set(state.by_key) - {key.id for key in keys}):
        typer.echo(f"key {key_id}: MISSING, seals {state.by_key[key_id]} secrets")
    for name, reason in state.unreadable.items():
        typer.echo(f"{name}: {reason}")
    if state.unreadable:
        raise CommandError(
            f"{len(state.unreadable)} of {sum(state.by_key.values())} secrets cannot be opened.",
            f"Put the missing key back at {vault.keyring.place}, or set these secrets anew.",
        )
    typer.echo(f"All {sum(state.by_key.values())} secrets can be opened." if keys else "No secret is stored yet.")


@app.command()
def rotate(ctx: typer.Context) -> None:
    """Seal every stored secret under a new key, while the node runs; run again to go on with one that was broken off."""
    from hopnode.worker.store.secret_rotation import rotate as rotate_keys

    with _opened(ctx.obj) as (db, vault):
        done = rotate_keys(db, vault)
        place = vault.keyring.place
    typer.echo(
        f"Made the key {done.key_id} in {place}." if done.made else f"The newest key is {done.key_id}, of {place}."
    )
    typer.echo(f"{done.resealed} secrets are sealed under it now. Older keys stay there: backups need them.")


@contextmanager
def _opened(invocation: Invocation) -> "Generator[tuple[Database, Vault]]":
    from hopnode.worker.store.database import Database
    from hopnode.worker.store.secrets.keyring import open_keyring
    from hopnode.worker.store.secrets.vault import Vault
    from hopnode.worker.store.sources.secret_config import hide_clear_secrets

    invocation.quiet_logs()
    db = Database(invocation.settings.sql_url)
    try:
        db.migrate()
        vault = Vault(db, open_keyring(invocation.settings))
        hide_clear_secrets(db, vault)
        yield db, vault
    finally:
        db.close()
