"""Webhooks of a workspace, the attempts of each delivery, and the lease under which an attempt is made."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

_ID = sa.String(64)


def upgrade() -> None:
    _create_webhooks()
    op.create_table(
        "delivery_attempts",
        sa.Column("delivery_id", _ID, nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("started_at", sa.Double, nullable=False),
        sa.Column("seconds", sa.Double, nullable=False),
        sa.Column("status", sa.Integer),
        sa.Column("error", sa.Text),
        sa.PrimaryKeyConstraint("delivery_id", "number", name="pk_delivery_attempts"),
        _belongs("delivery_attempts", "delivery_id", "deliveries"),
    )
    with op.batch_alter_table("deliveries") as batch:
        batch.add_column(sa.Column("webhook_id", _ID))
        batch.add_column(sa.Column("round_start", sa.Integer, nullable=False, server_default="0"))
        batch.add_column(sa.Column("lease_token", sa.String(64)))
        batch.add_column(sa.Column("lease_until", sa.Double))
        batch.create_foreign_key(
            "fk_deliveries_webhook_id_webhooks", "webhooks", ["webhook_id"], ["id"], ondelete="CASCADE"
        )
    op.create_index("ix_deliveries_webhook_id", "deliveries", ["webhook_id"])
    with op.batch_alter_table("sealed_secrets") as batch:
        for kind in ("webhook", "job"):
            batch.add_column(sa.Column(f"{kind}_id", _ID))
            batch.create_foreign_key(
                f"fk_sealed_secrets_{kind}_id_{kind}s", f"{kind}s", [f"{kind}_id"], ["id"], ondelete="CASCADE"
            )
    for kind in ("webhook", "job"):
        op.create_index(f"ix_sealed_secrets_{kind}_id", "sealed_secrets", [f"{kind}_id"])


def _create_webhooks() -> None:
    op.create_table(
        "webhooks",
        sa.Column("id", _ID, nullable=False),
        sa.Column("workspace_id", _ID, nullable=False),
        sa.Column("url", sa.String(2048), nullable=False),
        sa.Column("url_sha256", sa.String(64), nullable=False),
        sa.Column("events", sa.JSON, nullable=False),
        sa.Column("disabled_reason", sa.String(64)),
        sa.Column("failing_since", sa.Double),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("updated_at", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_webhooks"),
        _belongs("webhooks", "workspace_id", "workspaces"),
        sa.UniqueConstraint("workspace_id", "url_sha256", name="uq_webhooks_workspace_id_url_sha256"),
    )
    op.create_index("ix_webhooks_workspace_id", "webhooks", ["workspace_id"])


def _belongs(table: str, column: str, parent: str) -> sa.ForeignKeyConstraint:
    name = f"fk_{table}_{column}_{parent}"
    return sa.ForeignKeyConstraint([column], [f"{parent}.id"], name=name, ondelete="CASCADE")
