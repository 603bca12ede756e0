"""Listings look for the ends of findings by job, and the map of the fleet for the faults of all nodes."""

from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the indexes."""
    op.create_index("events_reason", "events", ["reason", "time"])
    op.execute("CREATE INDEX events_finding_ends ON events (project, job) WHERE reason = 'FindingEnded'")
