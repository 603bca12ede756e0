"""Tags and notes of jobs."""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None

_text = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Add the tables."""
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
