"""Diagnostic tasks, and the answers of agents."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

_text = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def _filled(*names: str) -> list[sa.Column[str]]:
    return [sa.Column(name, _text, nullable=False, server_default="") for name in names]


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "diagnostic_tasks",
        sa.Column("id", _text, primary_key=True),
        *_filled("project", "type", "label", "state", "resource_group"),
        sa.Column("created", sa.BigInteger, nullable=False),
        sa.Column("body", _text, nullable=False),
    )
    op.create_index("diagnostic_tasks_state", "diagnostic_tasks", ["state", "created", "id"])
    op.create_index("diagnostic_tasks_project", "diagnostic_tasks", ["project", "created", "id"])
    op.create_table(
        "diagnostic_answers",
        sa.Column("task", _text, primary_key=True),
        sa.Column("node", _text, primary_key=True),
        *_filled("project", "cluster"),
        sa.Column("deadline", sa.BigInteger, nullable=False),
        sa.Column("answer", _text),
    )
    op.create_index("diagnostic_answers_node", "diagnostic_answers", ["node", "deadline", "task"])
