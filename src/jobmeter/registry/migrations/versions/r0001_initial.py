"""The first tables."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_text = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def _filled(*names: str) -> list[sa.Column[str]]:
    return [sa.Column(name, _text, nullable=False, server_default="") for name in names]


def upgrade() -> None:
    """Create all tables."""
    _projects_and_jobs()
    _parts_of_jobs()
    _job_indexes()
    _keys()


def _projects_and_jobs() -> None:
    op.create_table(
        "projects",
        sa.Column("name", _text, primary_key=True),
        sa.Column("raw_days", sa.Integer),
        sa.Column("minute_days", sa.Integer),
        sa.Column("hour_days", sa.Integer),
    )
    op.create_table(
        "jobs",
        sa.Column("project", _text, primary_key=True),
        sa.Column("id", _text, primary_key=True),
        *_filled("name", "type"),
        sa.Column("state", _text),
        *_filled("user", "resource_group", "workspace"),
        *(sa.Column(name, sa.BigInteger) for name in ("created", "start", "end")),
        *_filled("error"),
        sa.Column("exit_code", sa.BigInteger),
        *_filled("command"),
        *(sa.Column(name, _text) for name in ("instance_type", "limits", "labels")),
        sa.Column("recorded", sa.Boolean, nullable=False),
        *(sa.Column(name, sa.BigInteger) for name in ("first_sample", "last_sample")),
        sa.Column("noticed", sa.BigInteger, nullable=False),
        *_filled("search"),
        _computed("created_sort", "coalesce(created, start, first_sample, noticed)"),
        _computed("start_sort", "coalesce(start, first_sample, -1)"),
        _computed(
            "end_sort",
            """CASE WHEN "end" IS NOT NULL THEN "end" WHEN state IN ('Queued', 'Running') THEN -1 """
            "ELSE coalesce(last_sample, -1) END",
        ),
        sa.Column(
            "status",
            _text,
            sa.Computed(
                "CASE WHEN state IS NOT NULL THEN state "
                """WHEN "end" IS NOT NULL THEN """
                "CASE WHEN coalesce(exit_code, 0) <> 0 THEN 'Failed' ELSE 'Succeeded' END "
                "WHEN last_sample IS NOT NULL THEN 'Sampled' "
                "WHEN start IS NOT NULL THEN 'Running' ELSE 'Queued' END",
                persisted=True,
            ),
            nullable=False,
        ),
    )


def _computed(name: str, expression: str) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger, sa.Computed(expression, persisted=True), nullable=False)


def _parts_of_jobs() -> None:
    op.create_table(
        "replicas",
        *(sa.Column(name, _text, primary_key=True) for name in ("project", "job", "name")),
        sa.Column("attempt", sa.BigInteger, primary_key=True),
        sa.Column("rank", sa.BigInteger),
        *_filled("cluster", "node", "pod_id"),
        sa.Column("state", _text),
        *(sa.Column(name, sa.BigInteger) for name in ("start", "end", "exit_code")),
        *_filled("reason"),
        *(sa.Column(name, sa.BigInteger) for name in ("first_sample", "last_sample")),
        sa.ForeignKeyConstraint(["project", "job"], ["jobs.project", "jobs.id"], ondelete="CASCADE"),
    )
    op.create_table(
        "allocations",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=True),
        *(
            sa.Column(name, _text, nullable=False)
            for name in ("project", "job", "replica", "cluster", "node", "device", "source")
        ),
        sa.Column("start", sa.BigInteger, nullable=False),
        sa.Column("end", sa.BigInteger),
        sa.Column("rank", sa.BigInteger),
        sa.ForeignKeyConstraint(["project", "job"], ["jobs.project", "jobs.id"], ondelete="CASCADE"),
        sa.CheckConstraint('"end" IS NULL OR "end" >= start', name="allocations_order"),
    )
    op.create_index("allocations_job", "allocations", ["project", "job", "replica", "node", "device", "source"])
    op.create_table(
        "nodes",
        *(sa.Column(name, _text, primary_key=True) for name in ("project", "cluster", "name")),
        *(sa.Column(name, sa.BigInteger) for name in ("first_seen", "last_seen")),
        sa.Column("info", _text),
    )


def _job_indexes() -> None:
    op.create_index("jobs_id", "jobs", ["id"])
    op.create_index("jobs_created", "jobs", ["created_sort", "id"])
    op.create_index("jobs_project_created", "jobs", ["project", "created_sort", "id", "search"])
    for name in ("status", "type", "user", "resource_group", "workspace"):
        op.create_index(f"jobs_project_{name}", "jobs", ["project", name, "created_sort", "id"])
    op.create_index("jobs_project_start", "jobs", ["project", "start_sort", "id"])
    op.create_index("jobs_project_end", "jobs", ["project", "end_sort", "id"])
    op.create_index("jobs_project_name", "jobs", ["project", "name", "id"])
    sampled = sa.text("status = 'Sampled'")
    op.create_index("jobs_sampled", "jobs", ["project", "last_sample"], sqlite_where=sampled, postgresql_where=sampled)


def _keys() -> None:
    op.create_table(
        "keys",
        sa.Column("id", _text, primary_key=True),
        *(sa.Column(name, _text, nullable=False) for name in ("name", "role")),
        sa.Column("project", _text),
        sa.Column("token_hash", sa.LargeBinary, nullable=False),
        sa.Column("access_key_id", _text, nullable=False),
        sa.Column("sealed_secret", sa.LargeBinary, nullable=False),
        sa.Column("created", sa.BigInteger, nullable=False),
        *(sa.Column(name, sa.BigInteger) for name in ("revoked", "last_used")),
    )
    op.create_index("keys_token", "keys", ["token_hash"], unique=True)
    op.create_index("keys_access_key", "keys", ["access_key_id"], unique=True)
