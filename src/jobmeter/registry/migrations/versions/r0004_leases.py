"""Leases: work that only one server does at a time."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_text = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Add the table of leases."""
    op.create_table(
        "leases",
        sa.Column("name", _text, primary_key=True),
        sa.Column("owner", _text, nullable=False),
        sa.Column("until", sa.BigInteger, nullable=False),
    )
