"""What vendors' APIs want of a job and a node: checkpoints, their own fields, when a record was written."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_text = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Add the columns."""
    for name in ("checkpoints", "extra"):
        op.add_column("jobs", sa.Column(name, _text))
    op.add_column("jobs", sa.Column("updated", sa.BigInteger))
    op.add_column("nodes", sa.Column("resource_group", _text, nullable=False, server_default=""))
