"""Log shippers."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

_text = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Add the table of shippers."""
    op.create_table(
        "shippers",
        sa.Column("id", _text, primary_key=True),
        *(
            sa.Column(name, _text, nullable=False, server_default="")
            for name in ("project", "resource_group", "sink_project", "logstore")
        ),
        sa.Column("created", sa.BigInteger, nullable=False),
        *(
            sa.Column(name, sa.BigInteger, nullable=False, server_default="0")
            for name in ("reserved", "cursor", "shipped", "dropped", "rejected", "failures")
        ),
        sa.Column("error", _text, nullable=False, server_default=""),
        sa.Column("oldest", sa.BigInteger),
        sa.Column("updated", sa.BigInteger),
    )
    op.create_index("shippers_group", "shippers", ["project", "resource_group"], unique=True)
