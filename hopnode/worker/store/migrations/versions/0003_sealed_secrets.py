"""Secrets of sources get a table of their own, sealed; the clear ones of older databases move there when a node opens it."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "sealed_secrets",
        sa.Column("owner_kind", sa.String(16), nullable=False),
        sa.Column("owner_id", sa.String(64), nullable=False),
        sa.Column("field", sa.String(512), nullable=False),
        sa.Column("workspace_id", sa.String(64), nullable=False),
        sa.Column("source_id", sa.String(64)),
        sa.Column("sealed", sa.Text, nullable=False),
        sa.Column("updated_at", sa.Double, nullable=False),
        sa.PrimaryKeyConstraint("owner_kind", "owner_id", "field", name="pk_sealed_secrets"),
        sa.ForeignKeyConstraint(
            ["workspace_id"], ["workspaces.id"], name="fk_sealed_secrets_workspace_id_workspaces", ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["source_id"], ["sources.id"], name="fk_sealed_secrets_source_id_sources", ondelete="CASCADE"
        ),
    )
    op.create_index("ix_sealed_secrets_workspace_id", "sealed_secrets", ["workspace_id"])
    op.create_index("ix_sealed_secrets_source_id", "sealed_secrets", ["source_id"])
