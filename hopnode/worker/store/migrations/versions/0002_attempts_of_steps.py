"""Each step knows the attempt that wrote it, so that those of a lost worker are told apart from those of the next one."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("job_steps", sa.Column("attempt", sa.Integer, nullable=False, server_default="1"))
