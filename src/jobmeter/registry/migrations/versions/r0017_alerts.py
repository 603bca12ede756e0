"""Alerts with their states, silences, and the messages to receivers."""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None

_text = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Add the tables."""
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
