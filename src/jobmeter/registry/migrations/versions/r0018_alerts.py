"""Alerts with their states, silences and messages; tags and notes of jobs; indexes of findings and faults."""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0015"
branch_labels = None
depends_on = None

_text = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Add the tables and the indexes."""
    _alerts()
    _annotations()
    # Listings look for the ends of findings by job, and the map of the fleet for the faults of all nodes.
    op.create_index("events_reason", "events", ["reason", "time"])
    op.execute("CREATE INDEX events_finding_ends ON events (project, job) WHERE reason = 'FindingEnded'")


def _alerts() -> None:
    for table, key in (("alerts", "fingerprint"), ("silences", "id"), ("notification_groups", "key")):
        op.create_table(
            table,
            sa.Column(key, _text, primary_key=True),
            sa.Column("updated", sa.BigInteger, nullable=False),
            sa.Column("body", _text, nullable=False),
        )
    op.create_table(
        "alert_messages",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), primary_key=True, autoincrement=True),
        sa.Column("destination", _text, nullable=False),
        sa.Column("body", _text, nullable=False),
        sa.Column("created", sa.BigInteger, nullable=False),
        sa.Column("tries", sa.BigInteger, nullable=False),
        sa.Column("next_try", sa.BigInteger, nullable=False),
        sa.Column("error", _text, nullable=False, server_default=""),
    )
    op.create_index("alert_messages_destination", "alert_messages", ["destination", "id"])


def _annotations() -> None:
    own = sa.Column("text", _text, nullable=False), sa.Column("time", sa.BigInteger)
    for table, key, more in (("tags", "tag", ()), ("notes", "id", own)):
        op.create_table(
            table,
            *(sa.Column(name, _text, primary_key=True) for name in ("project", "job", key)),
            *more,
            *(sa.Column(name, _text, nullable=False, server_default="") for name in ("author", "by")),
            sa.Column("created", sa.BigInteger, nullable=False),
            sa.ForeignKeyConstraint(["project", "job"], ["jobs.project", "jobs.id"], ondelete="CASCADE"),
        )
    op.create_index("tags_tag", "tags", ["tag", "project", "job"])
