"""Changes of jobs, and an index of the jobs of a node."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_text = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Add the table of changes with its first row, so that it is never empty, and an index."""
    changes = op.create_table(
        "job_changes",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=True),
        sa.Column("transaction", sa.BigInteger, nullable=False),
        sa.Column("written", sa.BigInteger, nullable=False),
        sa.Column("told", _text, nullable=False),
        sqlite_autoincrement=True,
    )
    op.bulk_insert(changes, [{"transaction": 0, "written": 0, "told": "{}"}])
    op.create_index("replicas_node", "replicas", ["node", "project", "job"])
