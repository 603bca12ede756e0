"""Alerts with their states, silences and messages; tags and notes of jobs; indexes of findings and faults."""

from alembic import op

revision = "0018"
down_revision = "0015"


def upgrade() -> None:
    """Add the indexes."""
    # Listings look for the ends of findings by job, and the map of the fleet for the faults of all nodes.
    op.create_index("events_reason", "events", ["reason", "time"])
    op.execute("CREATE INDEX events_finding_ends ON events (project, job) WHERE reason = 'FindingEnded'")
