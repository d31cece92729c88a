"""An index in the order of claims, so that a long queue slows nobody."""

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.drop_index("ix_jobs_claim", "jobs")
    order = ["status", "role", "workspace_id", "priority", "created_at", "id", "kind"]
    op.create_index("ix_jobs_turn", "jobs", order)
