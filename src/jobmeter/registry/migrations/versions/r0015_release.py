"""The tables of release 0.1.0: usage, diagnostic tasks, shippers, policies and links of keys, subjects of events."""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0005"
branch_labels = None
depends_on = None

_text = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")

_LISTING_INDEXES = (
    *("jobs_created", "jobs_project_status", "jobs_project_type", "jobs_project_user", "jobs_project_resource_group"),
    *("jobs_project_workspace", "jobs_project_start", "jobs_project_end", "jobs_project_name", "jobs_project_updated"),
    "jobs_sampled",
)
_LISTING_FUNCTIONS = ("meets", "texts", "label", "json", "fold")


def _filled(*names: str) -> list[sa.Column[str]]:
    return [sa.Column(name, _text, nullable=False, server_default="") for name in names]


def upgrade() -> None:
    """Add the tables, columns and indexes."""
    _remove_listings()
    for table, names in (
        ("keys", ("policies", "job")),
        ("events", ("subject", "actor")),
        ("replicas", ("pod",)),
    ):
        for column in _filled(*names):
            op.add_column(table, column)
    op.add_column("keys", sa.Column("expires", sa.BigInteger))
    op.add_column("nodes", sa.Column("down", sa.BigInteger))
    op.execute("ALTER TABLE job_changes RENAME COLUMN told TO payload")
    named = sa.text("pod_id <> ''")
    op.create_index("replicas_pod", "replicas", ["pod_id"], sqlite_where=named, postgresql_where=named)
    op.execute("CREATE INDEX events_findings ON events (project, job) WHERE reason = 'Finding'")
    _usage()
    _diagnostics()
    _shippers()


def _remove_listings() -> None:
    """Remove the parts of databases before 0.1.0 that listings in SQL used: listings read columns in memory."""
    if not any(column["name"] == "search" for column in sa.inspect(op.get_bind()).get_columns("jobs")):
        return
    for name in _LISTING_INDEXES:
        op.drop_index(name)
    op.drop_index("jobs_project_created")
    op.drop_column("jobs", "search")
    op.create_index("jobs_project_created", "jobs", ["project", "created_sort", "id"])
    if op.get_bind().dialect.name == "postgresql":
        for name in _LISTING_FUNCTIONS:
            op.execute(f"DROP FUNCTION IF EXISTS jobmeter_{name}")


def _usage() -> None:
    op.create_table(
        "usage",
        *(sa.Column(name, _text, primary_key=True) for name in ("month", "account", "api", "operation")),
        sa.Column("calls", sa.BigInteger, nullable=False),
        sa.Column("failed", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "usage_writers",
        sa.Column("writer", _text, primary_key=True),
        sa.Column("batch", sa.BigInteger, nullable=False),
        sa.Column("written", sa.BigInteger, nullable=False),
    )


def _diagnostics() -> None:
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


def _shippers() -> None:
    op.create_table(
        "shippers",
        sa.Column("id", _text, primary_key=True),
        *_filled("project", "resource_group", "sink_project", "logstore"),
        sa.Column("created", sa.BigInteger, nullable=False),
        *(
            sa.Column(name, sa.BigInteger, nullable=False, server_default="0")
            for name in ("reserved", "cursor", "shipped", "dropped", "rejected", "failures")
        ),
        *_filled("error"),
        sa.Column("oldest", sa.BigInteger),
        sa.Column("updated", sa.BigInteger),
    )
    op.create_index("shippers_group", "shippers", ["project", "resource_group"], unique=True)
