"""The tables of the node's database, in SQLAlchemy Core; times are seconds since the epoch (UTC), ids are opaque strings."""

import sqlalchemy as sa

metadata = sa.MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)

_Id = sa.String(64)
_NullableJson = sa.JSON(none_as_null=True)  # None is SQL NULL, not the JSON text `null`


def _workspace() -> sa.Column[str]:
    return sa.Column(
        "workspace_id", _Id, sa.ForeignKey("workspaces.id", ondelete="CASCADE"), nullable=False, index=True
    )


workspaces = sa.Table(
    "workspaces",
    metadata,
    sa.Column("id", _Id, primary_key=True),
    sa.Column("name", sa.String(64), nullable=False, unique=True),
    sa.Column("created_at", sa.Double, nullable=False),
)

keys = sa.Table(
    "keys",
    metadata,
    sa.Column("id", sa.String(8), primary_key=True),
    _workspace(),
    sa.Column("name", sa.String(128), nullable=False),
    sa.Column("secret_sha256", sa.String(64), nullable=False),
    sa.Column("scopes", sa.JSON, nullable=False),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("expires_at", sa.Double),
    sa.Column("last_used_at", sa.Double),
    sa.Column("revoked_at", sa.Double),
)

collections = sa.Table(
    "collections",
    metadata,
    sa.Column("id", _Id, primary_key=True),
    _workspace(),
    sa.Column("name", sa.String(64), nullable=False),
    sa.Column("description", sa.Text, nullable=False, server_default=sa.text("''")),
    sa.Column("embedder", sa.String(200)),
    sa.Column("dimension", sa.Integer),
    sa.Column("dense_weight", sa.Double),
    sa.Column("metadata", sa.JSON, nullable=False),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.UniqueConstraint("workspace_id", "name"),
)

sources = sa.Table(
    "sources",
    metadata,
    sa.Column("id", _Id, primary_key=True),
    _workspace(),
    sa.Column("collection_id", _Id, sa.ForeignKey("collections.id", ondelete="CASCADE"), nullable=False, index=True),
    sa.Column("kind", sa.String(32), nullable=False),
    sa.Column("name", sa.String(128), nullable=False),
    sa.Column("config", sa.JSON, nullable=False),
    sa.Column("state", sa.JSON, nullable=False),
    sa.Column("sync_every_seconds", sa.Integer),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("updated_at", sa.Double, nullable=False),
    sa.UniqueConstraint("workspace_id", "name"),
)

sealed_secrets = sa.Table(
    "sealed_secrets",
    metadata,
    sa.Column("owner_kind", sa.String(16), primary_key=True),
    sa.Column("owner_id", _Id, primary_key=True),
    sa.Column("field", sa.String(512), primary_key=True),
    _workspace(),
    # the owner once more, by kind, so that the database itself lets no secret outlive it
    sa.Column("source_id", _Id, sa.ForeignKey("sources.id", ondelete="CASCADE"), index=True),
    sa.Column("webhook_id", _Id, sa.ForeignKey("webhooks.id", ondelete="CASCADE"), index=True),
    sa.Column("job_id", _Id, sa.ForeignKey("jobs.id", ondelete="CASCADE"), index=True),
    sa.Column("sealed", sa.Text, nullable=False),
    sa.Column("updated_at", sa.Double, nullable=False),
)

items = sa.Table(
    "items",
    metadata,
    sa.Column("source_id", _Id, sa.ForeignKey("sources.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("item_id", sa.String(2048), primary_key=True),
    sa.Column("version", sa.String(512)),
    sa.Column("content_hash", sa.String(64)),
    sa.Column("document_key", sa.String(2048), nullable=False),
    sa.Column("pipeline_version", sa.Integer, nullable=False),
    sa.Column("seen_sync", _Id, index=True),
    sa.Column("missed_syncs", sa.Integer, nullable=False, server_default="0"),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("error", _NullableJson),
    sa.Column("updated_at", sa.Double, nullable=False),
)

syncs = sa.Table(
    "syncs",
    metadata,
    sa.Column("id", _Id, primary_key=True),
    _workspace(),
    sa.Column("source_id", _Id, sa.ForeignKey("sources.id", ondelete="CASCADE"), nullable=False, index=True),
    sa.Column("job_id", _Id, sa.ForeignKey("jobs.id", ondelete="CASCADE"), nullable=False, index=True),
    sa.Column("counts", sa.JSON, nullable=False),
    sa.Column("resume", _NullableJson),
    sa.Column("note", sa.String(64)),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("ended_at", sa.Double),
)

jobs = sa.Table(
    "jobs",
    metadata,
    sa.Column("id", _Id, primary_key=True),
    _workspace(),
    sa.Column("kind", sa.String(16), nullable=False),
    sa.Column("role", sa.String(16), nullable=False),
    sa.Column("status", sa.String(16), nullable=False),
    sa.Column("priority", sa.Integer, nullable=False, server_default="0"),
    sa.Column("attempt", sa.Integer, nullable=False, server_default="0"),
    sa.Column("max_attempts", sa.Integer, nullable=False),
    sa.Column("request", sa.JSON, nullable=False),
    sa.Column("result", _NullableJson),
    sa.Column("error", _NullableJson),
    sa.Column("callback", _NullableJson),
    sa.Column("lease_token", sa.String(64)),
    sa.Column("lease_until", sa.Double),
    sa.Column("next_at", sa.Double, nullable=False),
    sa.Column("deadline_at", sa.Double),
    sa.Column("last_step", sa.Integer, nullable=False, server_default="0"),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("started_at", sa.Double),
    sa.Column("ended_at", sa.Double),
    sa.Column("fingerprint", sa.String(64)),
    sa.Column("origin", _NullableJson),
    sa.Index("ix_jobs_turn", "status", "role", "workspace_id", "priority", "created_at", "id", "kind"),
    sa.Index("ix_jobs_recent", "workspace_id", "kind", "created_at"),
    sa.Index("ix_jobs_alike", "workspace_id", "fingerprint"),
    sa.Index("ix_jobs_waiting", "workspace_id", "status"),
)

job_steps = sa.Table(
    "job_steps",
    metadata,
    sa.Column("job_id", _Id, sa.ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("seq", sa.Integer, primary_key=True),
    sa.Column("attempt", sa.Integer, nullable=False, server_default="1"),
    sa.Column("kind", sa.String(32), nullable=False),
    sa.Column("data", sa.JSON, nullable=False),
    sa.Column("created_at", sa.Double, nullable=False),
)

deliveries = sa.Table(
    "deliveries",
    metadata,
    sa.Column("id", _Id, primary_key=True),
    _workspace(),
    sa.Column("job_id", _Id, sa.ForeignKey("jobs.id", ondelete="CASCADE"), nullable=False, index=True),
    sa.Column("url", sa.String(2048), nullable=False),
    sa.Column("event", sa.String(64), nullable=False),
    sa.Column("payload", sa.JSON, nullable=False),
    sa.Column("status", sa.String(16), nullable=False),
    sa.Column("attempts", sa.Integer, nullable=False, server_default="0"),
    sa.Column("next_at", sa.Double, nullable=False, index=True),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("last_status", sa.Integer),
    sa.Column("last_error", sa.Text),
    sa.Column("delivered_at", sa.Double),
    sa.Column("webhook_id", _Id, sa.ForeignKey("webhooks.id", ondelete="CASCADE"), index=True),
    sa.Column("round_start", sa.Integer, nullable=False, server_default="0"),
    sa.Column("lease_token", sa.String(64)),
    sa.Column("lease_until", sa.Double),
)

delivery_attempts = sa.Table(
    "delivery_attempts",
    metadata,
    sa.Column("delivery_id", _Id, sa.ForeignKey("deliveries.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("started_at", sa.Double, nullable=False),
    sa.Column("seconds", sa.Double, nullable=False),
    sa.Column("status", sa.Integer),
    sa.Column("error", sa.Text),
)

webhooks = sa.Table(
    "webhooks",
    metadata,
    sa.Column("id", _Id, primary_key=True),
    _workspace(),
    sa.Column("url", sa.String(2048), nullable=False),
    sa.Column("url_sha256", sa.String(64), nullable=False),
    sa.Column("events", sa.JSON, nullable=False),
    sa.Column("disabled_reason", sa.String(64)),
    sa.Column("failing_since", sa.Double),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("updated_at", sa.Double, nullable=False),
    sa.UniqueConstraint("workspace_id", "url_sha256"),
)

idempotency_keys = sa.Table(
    "idempotency_keys",
    metadata,
    sa.Column("workspace_id", _Id, sa.ForeignKey("workspaces.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("key", sa.String(255), primary_key=True),
    sa.Column("body_sha256", sa.String(64), nullable=False),
    sa.Column("job_id", _Id, sa.ForeignKey("jobs.id", ondelete="CASCADE"), nullable=False, index=True),
    sa.Column("created_at", sa.Double, nullable=False, index=True),
)

leases = sa.Table(
    "leases",
    metadata,
    sa.Column("name", sa.String(64), primary_key=True),
    sa.Column("token", sa.String(64), nullable=False),
    sa.Column("until", sa.Double, nullable=False),
)
