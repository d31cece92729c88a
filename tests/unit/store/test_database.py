"""The database door on both engines: schema, transactions, concurrency and translated errors."""

import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from worker.store.database import Database
from worker.store.tables import metadata


def test_the_migrated_schema_equals_the_declared_tables(database: Database) -> None:
    with database.read() as connection:
        context = MigrationContext.configure(
            connection, opts={"compare_type": True, "compare_server_default": True, "target_metadata": metadata}
        )
        assert compare_metadata(context, metadata) == []
        assert set(sa.inspect(connection).get_table_names()) == {*metadata.tables, "alembic_version"}
