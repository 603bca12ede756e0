"""The reports of schedulers: a new table alone."""

revision = "0021"
down_revision = "0020"


def upgrade() -> None:
    """Change no table that exists."""
