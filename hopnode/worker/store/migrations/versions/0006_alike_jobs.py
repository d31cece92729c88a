"""Jobs that ask the same are found by a fingerprint, and those that wait are counted by an index; older jobs have none."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("jobs", sa.Column("fingerprint", sa.String(64)))
    op.create_index("ix_jobs_alike", "jobs", ["workspace_id", "fingerprint"])
    op.create_index("ix_jobs_waiting", "jobs", ["workspace_id", "status"])
