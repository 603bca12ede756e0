"""Calls by account, operation and month, the batches that servers have added, and policies of keys."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

_text = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Create the two tables and the column."""
    op.add_column("keys", sa.Column("policies", _text, nullable=False, server_default=""))
    op.create_table(
        "usage",
        *(sa.Column(name, _text, primary_key=True) for name in ("month", "account", "api", "operation")),
        sa.Column("calls", sa.BigInteger, nullable=False),
        sa.Column("failed", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "usage_writers",
        sa.Column("writer", _text, primary_key=True),
        sa.Column("batch", sa.BigInteger, nullable=False),
        sa.Column("written", sa.BigInteger, nullable=False),
    )
