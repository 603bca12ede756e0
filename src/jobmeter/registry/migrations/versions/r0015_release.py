"""The columns and indexes of release 0.1.0: policies and links of keys, subjects of events, pods of replicas."""

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
    """Add the columns and indexes."""
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
