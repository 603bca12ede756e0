"""Signatures that several servers accepted, and the rates and budgets that they share."""

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None

_text = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Add the tables."""
    op.create_table(
        "accepted_signatures",
        sa.Column("minute", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("digest", sa.BigInteger, primary_key=True, autoincrement=False),
    )
    owner = op.create_table(
        "signature_owner",
        sa.Column("id", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("owner", _text, nullable=False, server_default=""),
        sa.Column("floor", sa.BigInteger, nullable=False),
    )
    op.bulk_insert(owner, [{"id": 1, "owner": "", "floor": 0}])
    op.create_table(
        "rate_buckets",
        sa.Column("name", _text, primary_key=True),
        *(sa.Column(name, sa.Double, nullable=False) for name in ("level", "moment", "per_second", "burst")),
        *(sa.Column(name, sa.Double, nullable=False) for name in ("granted", "spent")),
        prefixes=["UNLOGGED"] if op.get_bind().dialect.name == "postgresql" else [],
    )
