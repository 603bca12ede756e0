"""Creates the tables of databases before release 0.1.0, which the program can still upgrade."""

import sqlalchemy as sa
from alembic import op

REVISION = "0005"
_text = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def _filled(*names: str) -> list[sa.Column[str]]:
    return [sa.Column(name, _text, nullable=False, server_default="") for name in names]


def make_first_tables() -> None:
    """Create all tables in Alembic's context of operations."""
    _projects_and_jobs()
    _parts_of_jobs()
    _job_indexes()
    _events_and_changes()
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
        *(sa.Column(name, _text) for name in ("checkpoints", "extra")),
        sa.Column("updated", sa.BigInteger, nullable=False, server_default="-1"),
        *_filled("lease_owner"),
        *(sa.Column(name, sa.BigInteger) for name in ("lease_ms", "lease_renewed", "lost")),
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
        *_filled("resource_group"),
    )
    op.create_index("replicas_node", "replicas", ["node", "project", "job"])


def _job_indexes() -> None:
    op.create_index("jobs_id", "jobs", ["id"])
    op.create_index("jobs_project_created", "jobs", ["project", "created_sort", "id"])
    leased = sa.text("lease_renewed IS NOT NULL")
    op.create_index("jobs_leased", "jobs", ["lease_renewed"], sqlite_where=leased, postgresql_where=leased)


def _events_and_changes() -> None:
    number = sa.BigInteger().with_variant(sa.Integer, "sqlite")
    op.create_table(
        "events",
        sa.Column("id", number, primary_key=True, autoincrement=True),
        sa.Column("project", _text, nullable=False),
        *_filled("job", "replica"),
        sa.Column("attempt", sa.BigInteger, nullable=False),
        *_filled("cluster", "node"),
        *(sa.Column(name, _text, nullable=False) for name in ("source", "level")),
        *_filled("reason", "message"),
        sa.Column("time", sa.BigInteger, nullable=False),
        sa.Column("digest", sa.LargeBinary, nullable=False),
    )
    op.create_index("events_digest", "events", ["digest"], unique=True)
    op.create_index("events_job", "events", ["job", "time", "id", "project"])
    op.create_index("events_node", "events", ["node", "time", "id", "project"])
    op.create_index("events_project", "events", ["project", "time", "id"])
    changes = op.create_table(
        "job_changes",
        sa.Column("id", number, primary_key=True, autoincrement=True),
        sa.Column("transaction", sa.BigInteger, nullable=False),
        sa.Column("written", sa.BigInteger, nullable=False),
        sa.Column("told", _text, nullable=False),
        sqlite_autoincrement=True,
    )
    # The table of changes is never empty.
    op.bulk_insert(changes, [{"transaction": 0, "written": 0, "told": "{}"}])
    op.create_table(
        "leases",
        sa.Column("name", _text, primary_key=True),
        sa.Column("owner", _text, nullable=False),
        sa.Column("until", sa.BigInteger, nullable=False),
    )


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
