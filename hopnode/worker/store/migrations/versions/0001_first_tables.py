"""The first tables: workspaces, keys, collections, sources, items, jobs, steps, syncs, deliveries, idempotency, leases."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_ID = sa.String(64)


def upgrade() -> None:
    _create_workspaces()
    _create_collections()
    _create_sources()
    _create_jobs()
    _create_what_follows_a_job()
    _create_syncs()
    op.create_table(
        "leases",
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("token", sa.String(64), nullable=False),
        sa.Column("until", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_leases"),
    )


def _id(name: str) -> sa.Column[str]:
    return sa.Column(name, _ID, nullable=False)


def _created_at() -> sa.Column[float]:
    return sa.Column("created_at", sa.Double, nullable=False)


def _belongs(table: str, column: str, parent: str) -> sa.ForeignKeyConstraint:
    name = f"fk_{table}_{column}_{parent}"
    return sa.ForeignKeyConstraint([column], [f"{parent}.id"], name=name, ondelete="CASCADE")


def _create_indexes(table: str, *columns: str) -> None:
    for column in columns:
        op.create_index(f"ix_{table}_{column}", table, [column])


def _create_workspaces() -> None:
    op.create_table(
        "workspaces",
        _id("id"),
        sa.Column("name", sa.String(64), nullable=False),
        _created_at(),
        sa.PrimaryKeyConstraint("id", name="pk_workspaces"),
        sa.UniqueConstraint("name", name="uq_workspaces_name"),
    )
    op.create_table(
        "keys",
        sa.Column("id", sa.String(8), nullable=False),
        _id("workspace_id"),
        sa.Column("name", sa.String(128), nullable=False),
        sa.Column("secret_sha256", sa.String(64), nullable=False),
        sa.Column("scopes", sa.JSON, nullable=False),
        _created_at(),
        sa.Column("expires_at", sa.Double),
        sa.Column("last_used_at", sa.Double),
        sa.Column("revoked_at", sa.Double),
        sa.PrimaryKeyConstraint("id", name="pk_keys"),
        _belongs("keys", "workspace_id", "workspaces"),
    )
    _create_indexes("keys", "workspace_id")


def _create_collections() -> None:
    op.create_table(
        "collections",
        _id("id"),
        _id("workspace_id"),
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("description", sa.Text, nullable=False, server_default=sa.text("''")),
        sa.Column("embedder", sa.String(200)),
        sa.Column("dimension", sa.Integer),
        sa.Column("dense_weight", sa.Double),
        sa.Column("metadata", sa.JSON, nullable=False),
        _created_at(),
        sa.PrimaryKeyConstraint("id", name="pk_collections"),
        _belongs("collections", "workspace_id", "workspaces"),
        sa.UniqueConstraint("workspace_id", "name", name="uq_collections_workspace_id_name"),
    )
    _create_indexes("collections", "workspace_id")


def _create_sources() -> None:
    op.create_table(
        "sources",
        _id("id"),
        _id("workspace_id"),
        _id("collection_id"),
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("name", sa.String(128), nullable=False),
        sa.Column("config", sa.JSON, nullable=False),
        sa.Column("state", sa.JSON, nullable=False),
        sa.Column("sync_every_seconds", sa.Integer),
        _created_at(),
        sa.Column("updated_at", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_sources"),
        _belongs("sources", "workspace_id", "workspaces"),
        _belongs("sources", "collection_id", "collections"),
        sa.UniqueConstraint("workspace_id", "name", name="uq_sources_workspace_id_name"),
    )
    _create_indexes("sources", "workspace_id", "collection_id")
    op.create_table(
        "items",
        _id("source_id"),
        sa.Column("item_id", sa.String(2048), nullable=False),
        sa.Column("version", sa.String(512)),
        sa.Column("content_hash", sa.String(64)),
        sa.Column("document_key", sa.String(2048), nullable=False),
        sa.Column("pipeline_version", sa.Integer, nullable=False),
        sa.Column("seen_sync", _ID),
        sa.Column("missed_syncs", sa.Integer, nullable=False, server_default="0"),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("error", sa.JSON),
        sa.Column("updated_at", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("source_id", "item_id", name="pk_items"),
        _belongs("items", "source_id", "sources"),
    )
    _create_indexes("items", "seen_sync")


def _create_jobs() -> None:
    op.create_table(
        "jobs",
        _id("id"),
        _id("workspace_id"),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("role", sa.String(16), nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("priority", sa.Integer, nullable=False, server_default="0"),
        sa.Column("attempt", sa.Integer, nullable=False, server_default="0"),
        sa.Column("max_attempts", sa.Integer, nullable=False),
        sa.Column("request", sa.JSON, nullable=False),
        sa.Column("result", sa.JSON),
        sa.Column("error", sa.JSON),
        sa.Column("callback", sa.JSON),
        sa.Column("lease_token", sa.String(64)),
        sa.Column("lease_until", sa.Double),
        sa.Column("next_at", sa.Double, nullable=False),
        sa.Column("deadline_at", sa.Double),
        sa.Column("last_step", sa.Integer, nullable=False, server_default="0"),
        _created_at(),
        sa.Column("started_at", sa.Double),
        sa.Column("ended_at", sa.Double),
        sa.PrimaryKeyConstraint("id", name="pk_jobs"),
        _belongs("jobs", "workspace_id", "workspaces"),
    )
    _create_indexes("jobs", "workspace_id")
    op.create_index("ix_jobs_claim", "jobs", ["role", "status", "next_at"])
    op.create_index("ix_jobs_recent", "jobs", ["workspace_id", "kind", "created_at"])


def _create_what_follows_a_job() -> None:
    op.create_table(
        "job_steps",
        _id("job_id"),
        sa.Column("seq", sa.Integer, nullable=False),
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("data", sa.JSON, nullable=False),
        _created_at(),
        sa.PrimaryKeyConstraint("job_id", "seq", name="pk_job_steps"),
        _belongs("job_steps", "job_id", "jobs"),
    )
    op.create_table(
        "deliveries",
        _id("id"),
        _id("workspace_id"),
        _id("job_id"),
        sa.Column("url", sa.String(2048), nullable=False),
        sa.Column("event", sa.String(64), nullable=False),
        sa.Column("payload", sa.JSON, nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False, server_default="0"),
        sa.Column("next_at", sa.Double, nullable=False),
        _created_at(),
        sa.Column("last_status", sa.Integer),
        sa.Column("last_error", sa.Text),
        sa.Column("delivered_at", sa.Double),
        sa.PrimaryKeyConstraint("id", name="pk_deliveries"),
        _belongs("deliveries", "workspace_id", "workspaces"),
        _belongs("deliveries", "job_id", "jobs"),
    )
    _create_indexes("deliveries", "workspace_id", "job_id", "next_at")
    op.create_table(
        "idempotency_keys",
        _id("workspace_id"),
        sa.Column("key", sa.String(255), nullable=False),
        sa.Column("body_sha256", sa.String(64), nullable=False),
        _id("job_id"),
        _created_at(),
        sa.PrimaryKeyConstraint("workspace_id", "key", name="pk_idempotency_keys"),
        _belongs("idempotency_keys", "workspace_id", "workspaces"),
        _belongs("idempotency_keys", "job_id", "jobs"),
    )
    _create_indexes("idempotency_keys", "job_id", "created_at")


def _create_syncs() -> None:
    op.create_table(
        "syncs",
        _id("id"),
        _id("workspace_id"),
        _id("source_id"),
        _id("job_id"),
        sa.Column("counts", sa.JSON, nullable=False),
        sa.Column("resume", sa.JSON),
        sa.Column("note", sa.String(64)),
        _created_at(),
        sa.Column("ended_at", sa.Double),
        sa.PrimaryKeyConstraint("id", name="pk_syncs"),
        _belongs("syncs", "workspace_id", "workspaces"),
        _belongs("syncs", "source_id", "sources"),
        _belongs("syncs", "job_id", "jobs"),
    )
    _create_indexes("syncs", "workspace_id", "source_id", "job_id")
