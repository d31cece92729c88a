"""A job remembers the request that ordered it, its id and its trace, so that the worker's lines and spans join that request's."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("jobs", sa.Column("origin", sa.JSON))
