"""Renames the column of changes to ``payload``."""

from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Rename the column."""
    op.execute("ALTER TABLE job_changes RENAME COLUMN told TO payload")
