"""Signatures that several servers accepted, and the rates and budgets that they share: new tables alone."""

revision = "0019"
down_revision = "0018"


def upgrade() -> None:
    """Change no table that exists."""
