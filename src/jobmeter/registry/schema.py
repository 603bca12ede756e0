"""The tables, as they stand after the last migration.

Times are epoch milliseconds. A NULL means unknown; of a text, the empty one does. Structured values are JSON text,
since only functions of ours look into them. Texts that are sorted use byte order in both databases. The generated
columns hold what listings filter and sort by:

- ``created_sort``: created, else start, else first sample, else when the job was first heard of.
- ``start_sort`` and ``end_sort``: the effective start and end, -1 where there is none.
- ``status``: the recorded state or what a recorded end implies; ``Sampled`` where only the age of the last sample
  tells whether the job runs.

Indexes of a part of a table have the same WHERE in PostgreSQL: the migrations say so. Here it stands for SQLite alone,
as SQLAlchemy loads the dialect of each that is named.
"""

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Computed,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
)
from sqlalchemy import text as sa_text

from jobmeter.model.event import FINDING

SAMPLED = "Sampled"
"""The ``status`` of a job whose state follows from the age of its last sample.

A job with an end has a state: the program writes it, since the expression below is that of the first migration.
"""

text = Text().with_variant(Text(collation="C"), "postgresql")


def _text(name: str) -> Column[str]:
    return Column(name, text, nullable=False, server_default="")


metadata = MetaData()

projects = Table(
    "projects",
    metadata,
    Column("name", text, primary_key=True),
    Column("raw_days", Integer),
    Column("minute_days", Integer),
    Column("hour_days", Integer),
)

CREATED_SORT = "coalesce(created, start, first_sample, noticed)"
START_SORT = "coalesce(start, first_sample, -1)"
END_SORT = (
    """CASE WHEN "end" IS NOT NULL THEN "end" WHEN state IN ('Queued', 'Running') THEN -1 """
    "ELSE coalesce(last_sample, -1) END"
)
STATUS = (
    "CASE WHEN state IS NOT NULL THEN state "
    """WHEN "end" IS NOT NULL THEN CASE WHEN coalesce(exit_code, 0) <> 0 THEN 'Failed' ELSE 'Succeeded' END """
    f"WHEN last_sample IS NOT NULL THEN '{SAMPLED}' "
    "WHEN start IS NOT NULL THEN 'Running' ELSE 'Queued' END"
)

jobs = Table(
    "jobs",
    metadata,
    Column("project", text, primary_key=True),
    Column("id", text, primary_key=True),
    _text("name"),
    _text("type"),
    Column("state", text),
    _text("user"),
    _text("resource_group"),
    _text("workspace"),
    Column("created", BigInteger),
    Column("start", BigInteger),
    Column("end", BigInteger),
    _text("error"),
    Column("exit_code", BigInteger),
    _text("command"),
    Column("instance_type", text),
    Column("limits", text),
    Column("labels", text),
    Column("checkpoints", text),
    Column("extra", text),
    Column("updated", BigInteger, nullable=False, server_default="-1"),
    Column("recorded", Boolean, nullable=False),
    Column("first_sample", BigInteger),
    Column("last_sample", BigInteger),
    Column("noticed", BigInteger, nullable=False),
    # The lease of a run: its owner, its length from when it was renewed; and when the job was found lost.
    _text("lease_owner"),
    Column("lease_ms", BigInteger),
    Column("lease_renewed", BigInteger),
    Column("lost", BigInteger),
    Column("created_sort", BigInteger, Computed(CREATED_SORT, persisted=True), nullable=False),
    Column("start_sort", BigInteger, Computed(START_SORT, persisted=True), nullable=False),
    Column("end_sort", BigInteger, Computed(END_SORT, persisted=True), nullable=False),
    Column("status", text, Computed(STATUS, persisted=True), nullable=False),
)

Index("jobs_id", jobs.c.id)
# A project's oldest and newest job; listings are answered from columns in memory.
Index("jobs_project_created", jobs.c.project, jobs.c.created_sort, jobs.c.id)
Index(
    "jobs_leased",
    jobs.c.lease_renewed,
    sqlite_where=jobs.c.lease_renewed.is_not(None),
)

replicas = Table(
    "replicas",
    metadata,
    Column("project", text, primary_key=True),
    Column("job", text, primary_key=True),
    Column("name", text, primary_key=True),
    Column("attempt", BigInteger, primary_key=True),
    Column("rank", BigInteger),
    _text("cluster"),
    _text("node"),
    _text("pod_id"),
    Column("state", text),
    Column("start", BigInteger),
    Column("end", BigInteger),
    Column("exit_code", BigInteger),
    _text("reason"),
    Column("first_sample", BigInteger),
    Column("last_sample", BigInteger),
    ForeignKeyConstraint(["project", "job"], ["jobs.project", "jobs.id"], ondelete="CASCADE"),
)
Index("replicas_node", replicas.c.node, replicas.c.project, replicas.c.job)
Index(
    "replicas_pod",
    replicas.c.pod_id,
    sqlite_where=replicas.c.pod_id != "",
)

allocations = Table(
    "allocations",
    metadata,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
    Column("project", text, nullable=False),
    Column("job", text, nullable=False),
    Column("replica", text, nullable=False),
    Column("cluster", text, nullable=False),
    Column("node", text, nullable=False),
    Column("device", text, nullable=False),
    Column("source", text, nullable=False),
    Column("start", BigInteger, nullable=False),
    Column("end", BigInteger),
    Column("rank", BigInteger),
    ForeignKeyConstraint(["project", "job"], ["jobs.project", "jobs.id"], ondelete="CASCADE"),
    CheckConstraint('"end" IS NULL OR "end" >= start', name="allocations_order"),
)
Index(
    "allocations_job",
    allocations.c.project,
    allocations.c.job,
    allocations.c.replica,
    allocations.c.node,
    allocations.c.device,
    allocations.c.source,
)

nodes = Table(
    "nodes",
    metadata,
    Column("project", text, primary_key=True),
    Column("cluster", text, primary_key=True),
    Column("name", text, primary_key=True),
    _text("resource_group"),
    Column("first_seen", BigInteger),
    Column("last_seen", BigInteger),
    Column("info", text),
    # When an event said that it fell silent; NULL while it sends.
    Column("down", BigInteger),
)

events = Table(
    "events",
    metadata,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
    Column("project", text, nullable=False),
    *(_text(name) for name in ("job", "replica")),
    Column("attempt", BigInteger, nullable=False),
    *(_text(name) for name in ("cluster", "node")),
    Column("source", text, nullable=False),
    Column("level", text, nullable=False),
    *(_text(name) for name in ("reason", "message")),
    Column("time", BigInteger, nullable=False),
    _text("subject"),
    _text("actor"),
    Column("digest", LargeBinary, nullable=False),
)
Index("events_digest", events.c.digest, unique=True)
# An id of a job or a name of a node is rarely used by two projects: the project is there to be read, not to be sought.
Index("events_job", events.c.job, events.c.time, events.c.id, events.c.project)
Index("events_node", events.c.node, events.c.time, events.c.id, events.c.project)
Index("events_project", events.c.project, events.c.time, events.c.id)
# Events of findings are few, and listings filter by them.
Index(
    "events_findings",
    events.c.project,
    events.c.job,
    sqlite_where=events.c.reason == sa_text(f"'{FINDING}'"),
)

# One row a transaction that wrote jobs, see ``changes``: never empty, and in no backup.
job_changes = Table(
    "job_changes",
    metadata,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
    Column("transaction", BigInteger, nullable=False),
    Column("written", BigInteger, nullable=False),
    Column("payload", text, nullable=False),
    sqlite_autoincrement=True,
)

keys = Table(
    "keys",
    metadata,
    Column("id", text, primary_key=True),
    Column("name", text, nullable=False),
    Column("role", text, nullable=False),
    Column("project", text),
    Column("token_hash", LargeBinary, nullable=False),
    Column("access_key_id", text, nullable=False),
    Column("sealed_secret", LargeBinary, nullable=False),
    Column("created", BigInteger, nullable=False),
    Column("revoked", BigInteger),
    Column("last_used", BigInteger),
    _text("policies"),
    # Of a link: the one job that it opens, and until when.
    _text("job"),
    Column("expires", BigInteger),
)
Index("keys_token", keys.c.token_hash, unique=True)
Index("keys_access_key", keys.c.access_key_id, unique=True)

# Who does alone what of several servers one may do at a time, until when; in no backup.
leases = Table(
    "leases",
    metadata,
    Column("name", text, primary_key=True),
    Column("owner", text, nullable=False),
    Column("until", BigInteger, nullable=False),
)

# Calls by account and operation, in months of the zone that the settings name.
usage = Table(
    "usage",
    metadata,
    *(Column(name, text, primary_key=True) for name in ("month", "account", "api", "operation")),
    Column("calls", BigInteger, nullable=False),
    Column("failed", BigInteger, nullable=False),
)

# The last batch of counts that each server's process added, so that one sent again adds nothing; in no backup.
usage_writers = Table(
    "usage_writers",
    metadata,
    Column("writer", text, primary_key=True),
    Column("batch", BigInteger, nullable=False),
    Column("written", BigInteger, nullable=False),
)

diagnostic_tasks = Table(
    "diagnostic_tasks",
    metadata,
    Column("id", text, primary_key=True),
    *(_text(name) for name in ("project", "type", "label", "state", "resource_group")),
    Column("created", BigInteger, nullable=False),
    Column("body", text, nullable=False),
)
Index("diagnostic_tasks_state", diagnostic_tasks.c.state, diagnostic_tasks.c.created, diagnostic_tasks.c.id)
Index("diagnostic_tasks_project", diagnostic_tasks.c.project, diagnostic_tasks.c.created, diagnostic_tasks.c.id)

# A task's request to the agent of each of its nodes; the answer is NULL until it came.
diagnostic_answers = Table(
    "diagnostic_answers",
    metadata,
    Column("task", text, primary_key=True),
    Column("node", text, primary_key=True),
    *(_text(name) for name in ("project", "cluster")),
    Column("deadline", BigInteger, nullable=False),
    Column("answer", text),
)
Index("diagnostic_answers_node", diagnostic_answers.c.node, diagnostic_answers.c.deadline, diagnostic_answers.c.task)

# What goes where of the log lines of resource groups, and how far it has come.
shippers = Table(
    "shippers",
    metadata,
    Column("id", text, primary_key=True),
    *(_text(name) for name in ("project", "resource_group", "sink_project", "logstore")),
    Column("created", BigInteger, nullable=False),
    *(
        Column(name, BigInteger, nullable=False, server_default="0")
        for name in ("reserved", "cursor", "shipped", "dropped", "rejected", "failures")
    ),
    _text("error"),
    Column("oldest", BigInteger),
    Column("updated", BigInteger),
)
Index("shippers_group", shippers.c.project, shippers.c.resource_group, unique=True)

TABLES = (
    projects,
    jobs,
    replicas,
    allocations,
    nodes,
    events,
    keys,
    usage,
    diagnostic_tasks,
    diagnostic_answers,
    shippers,
)
"""Every table of a backup, referenced ones first."""
