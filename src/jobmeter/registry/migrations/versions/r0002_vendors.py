"""Fields for vendors' APIs: events, checkpoints, their own fields, times of records, groups of nodes."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_text = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def _text_columns(*names: str) -> list[sa.Column[str]]:
    return [sa.Column(name, _text, nullable=False, server_default="") for name in names]


def upgrade() -> None:
    """Add columns and the table of events."""
    for name in ("checkpoints", "extra"):
        op.add_column("jobs", sa.Column(name, _text))
    op.add_column("jobs", sa.Column("updated", sa.BigInteger, nullable=False, server_default="-1"))
    op.create_index("jobs_project_updated", "jobs", ["project", "updated", "id"])
    op.add_column("nodes", *_text_columns("resource_group"))
    op.create_table(
        "events",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=True),
        sa.Column("project", _text, nullable=False),
        *_text_columns("job", "replica"),
        sa.Column("attempt", sa.BigInteger, nullable=False),
        *_text_columns("cluster", "node"),
        *(sa.Column(name, _text, nullable=False) for name in ("source", "level")),
        *_text_columns("reason", "message"),
        sa.Column("time", sa.BigInteger, nullable=False),
        sa.Column("digest", sa.LargeBinary, nullable=False),
    )
    op.create_index("events_digest", "events", ["digest"], unique=True)
    op.create_index("events_job", "events", ["job", "time", "id", "project"])
    op.create_index("events_node", "events", ["node", "time", "id", "project"])
    op.create_index("events_project", "events", ["project", "time", "id"])
