"""Keys that open one job until they expire, and an index of stored findings."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

_text = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Add the columns and the index."""
    op.add_column("keys", sa.Column("job", _text, nullable=False, server_default=""))
    op.add_column("keys", sa.Column("expires", sa.BigInteger))
    op.execute("CREATE INDEX events_findings ON events (project, job) WHERE reason = 'Finding'")
