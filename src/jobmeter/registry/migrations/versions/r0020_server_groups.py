"""The servers of stores without a table of servers, and the replicas of these stores: new tables alone."""

revision = "0020"
down_revision = "0019"


def upgrade() -> None:
    """Change no table that exists."""
