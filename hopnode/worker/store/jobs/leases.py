"""Named leases: one holder at a time, told by a token, until the lease ends; knows nothing of what is done under them."""

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from hopnode.worker.store.database import Database
from hopnode.worker.store.tables import leases


def try_lease(db: Database, name: str, token: str, seconds: float) -> bool:
    """Takes the lease `name` for `seconds` from now, or renews it for the same `token`. False while another token holds it."""
    insert = postgresql.insert if db.dialect == "postgresql" else sqlite.insert
    with db.write() as connection:
        now = db.now(connection)
        statement = insert(leases).values(name=name, token=token, until=now + seconds)
        statement = statement.on_conflict_do_update(
            index_elements=[leases.c.name],
            set_={"token": token, "until": now + seconds},
            where=sa.or_(leases.c.token == token, leases.c.until < now),
        )
        return connection.execute(statement.returning(leases.c.name)).first() is not None


def drop_lease(db: Database, name: str, token: str) -> None:
    """Gives the lease back early, if `token` still holds it."""
    with db.write() as connection:
        connection.execute(leases.delete().where(leases.c.name == name, leases.c.token == token))
