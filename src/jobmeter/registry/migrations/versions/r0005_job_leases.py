"""Leases of runs, and Unknown as the state of jobs of which only an end is known."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

_text = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Add the columns and their index, and correct the states that the expression of ``status`` derived wrongly."""
    op.add_column("jobs", sa.Column("lease_owner", _text, nullable=False, server_default=""))
    for name in ("lease_ms", "lease_renewed", "lost"):
        op.add_column("jobs", sa.Column(name, sa.BigInteger))
    leased = sa.text("lease_renewed IS NOT NULL")
    op.create_index("jobs_leased", "jobs", ["lease_renewed"], sqlite_where=leased, postgresql_where=leased)
    op.execute("UPDATE jobs SET state = 'Unknown' WHERE state IS NULL AND \"end\" IS NOT NULL AND exit_code IS NULL")
