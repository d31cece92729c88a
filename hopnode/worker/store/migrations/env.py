"""Alembic's entry: runs the steps on the connection that `Database.migrate` opened, and opens none itself."""

from alembic import context

from hopnode.worker.store.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    render_as_batch=True,
    compare_server_default=True,
)
with context.begin_transaction():
    context.run_migrations()
