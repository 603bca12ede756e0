"""The subject of an event that concerns no job, replica or node, and the time since which a node is down."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

_text = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Add the columns."""
    op.add_column("events", sa.Column("subject", _text, nullable=False, server_default=""))
    op.add_column("nodes", sa.Column("down", sa.BigInteger))
