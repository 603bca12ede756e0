"""The tables, as they stand after the last migration.

Times are epoch milliseconds. NULL means unknown, and so does an empty text. Structured values are JSON text, because
only Jobmeter's own functions read them. Sorted texts use byte order in both databases. The generated columns hold the
values by which listings filter and sort:

- ``created_sort``: created, else start, else first sample, else the time of the first record.
- ``start_sort`` and ``end_sort``: the effective start and end, -1 if unknown.
- ``status``: the recorded state, else the state that a recorded end implies; ``Sampled`` if the state follows from
  the age of the last sample.

Partial indexes have the same WHERE in PostgreSQL, see ``jobmeter.registry.migrate``. Here it is given for SQLite alone,
because SQLAlchemy loads every dialect that is named.
"""

from collections.abc import Iterator, Mapping
from typing import TypeVar

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Computed,
    Double,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
)
from sqlalchemy import text as sa_text
from sqlalchemy.types import TypeEngine

from jobmeter.model.event import FINDING, FINDING_ENDED

SAMPLED = "Sampled"
"""The ``status`` of a job whose state follows from the age of its last sample.

A job with an end has a state: the program writes it, because the expression below is that of the first migration.
"""

T = TypeVar("T")
text = Text().with_variant(Text(collation="C"), "postgresql")
number = BigInteger()


def _key(*names: str) -> Iterator[Column[str]]:
    return (Column(name, text, primary_key=True) for name in names)


def _texts(*names: str) -> Iterator[Column[str]]:
    return (Column(name, text, nullable=False, server_default="") for name in names)


def _make_required(kind: TypeEngine[T], *names: str) -> Iterator[Column[T]]:
    return (Column(name, kind, nullable=False) for name in names)


def _make_optional(kind: TypeEngine[T], *names: str) -> Iterator[Column[T]]:
    return (Column(name, kind) for name in names)


def _row_id() -> Column[int]:
    return Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True)


def _make_computed(name: str, expression: str) -> Column[int]:
    return Column(name, number, Computed(expression, persisted=True), nullable=False)


metadata = MetaData()

projects = Table(
    "projects", metadata, *_key("name"), *_make_optional(Integer(), "raw_days", "minute_days", "hour_days")
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
    *_key("project", "id"),
    *_texts("name", "type"),
    *_make_optional(text, "state"),
    *_texts("user", "resource_group", "workspace"),
    *_make_optional(number, "created", "start", "end"),
    *_texts("error"),
    *_make_optional(number, "exit_code"),
    *_texts("command"),
    *_make_optional(text, "instance_type", "limits", "labels", "checkpoints", "extra"),
    Column("updated", BigInteger, nullable=False, server_default="-1"),
    Column("recorded", Boolean, nullable=False),
    *_make_optional(number, "first_sample", "last_sample"),
    *_make_required(number, "noticed"),
    # The lease of a run: its owner, its length from its last renewal; and the time at which the job was found lost.
    *_texts("lease_owner"),
    *_make_optional(number, "lease_ms", "lease_renewed", "lost"),
    _make_computed("created_sort", CREATED_SORT),
    _make_computed("start_sort", START_SORT),
    _make_computed("end_sort", END_SORT),
    Column("status", text, Computed(STATUS, persisted=True), nullable=False),
)

Index("jobs_id", jobs.c.id)
# A project's oldest and newest job; listings are answered from columns in memory.
Index("jobs_project_created", jobs.c.project, jobs.c.created_sort, jobs.c.id)
Index("jobs_leased", jobs.c.lease_renewed, sqlite_where=jobs.c.lease_renewed.is_not(None))

replicas = Table(
    "replicas",
    metadata,
    *_key("project", "job", "name"),
    Column("attempt", BigInteger, primary_key=True),
    *_make_optional(number, "rank"),
    *_texts("cluster", "node", "pod_id", "pod"),
    *_make_optional(text, "state"),
    *_make_optional(number, "start", "end", "exit_code"),
    *_texts("reason"),
    *_make_optional(number, "first_sample", "last_sample"),
    ForeignKeyConstraint(["project", "job"], ["jobs.project", "jobs.id"], ondelete="CASCADE"),
)
Index("replicas_node", replicas.c.node, replicas.c.project, replicas.c.job)
Index("replicas_pod", replicas.c.pod_id, sqlite_where=replicas.c.pod_id != "")

# Tags and notes of people; see ``model/annotation.py``.
tags, notes = (
    Table(
        name,
        metadata,
        *_key("project", "job", key),
        *more,
        *_texts("author", "by"),
        *_make_required(number, "created"),
        ForeignKeyConstraint(["project", "job"], ["jobs.project", "jobs.id"], ondelete="CASCADE"),
    )
    for name, key, more in (
        ("tags", "tag", ()),
        ("notes", "id", (Column("text", text, nullable=False), Column("time", number))),
    )
)
Index("tags_tag", tags.c.tag, tags.c.project, tags.c.job)

allocations = Table(
    "allocations",
    metadata,
    _row_id(),
    *_make_required(text, "project", "job", "replica", "cluster", "node", "device", "source"),
    *_make_required(number, "start"),
    *_make_optional(number, "end", "rank"),
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
    *_key("project", "cluster", "name"),
    *_texts("resource_group"),
    *_make_optional(number, "first_seen", "last_seen"),
    *_make_optional(text, "info"),
    # Time of the event that says that it fell silent; NULL while it sends.
    *_make_optional(number, "down"),
)

events = Table(
    "events",
    metadata,
    _row_id(),
    *_make_required(text, "project"),
    *_texts("job", "replica"),
    *_make_required(number, "attempt"),
    *_texts("cluster", "node"),
    *_make_required(text, "source", "level"),
    *_texts("reason", "message"),
    *_make_required(number, "time"),
    *_texts("subject", "actor"),
    *_make_required(LargeBinary(), "digest"),
)
Index("events_digest", events.c.digest, unique=True)
# Two projects rarely use the same job id or node name: the project is in the index to be read, not searched.
Index("events_job", events.c.job, events.c.time, events.c.id, events.c.project)
Index("events_node", events.c.node, events.c.time, events.c.id, events.c.project)
Index("events_project", events.c.project, events.c.time, events.c.id)
# The map of the fleet queries the faults of all nodes often.
Index("events_reason", events.c.reason, events.c.time)
# Events of findings are few, and listings filter by them.
Index("events_findings", events.c.project, events.c.job, sqlite_where=events.c.reason == sa_text(f"'{FINDING}'"))
_ended = events.c.reason == sa_text(f"'{FINDING_ENDED}'")
Index("events_finding_ends", events.c.project, events.c.job, sqlite_where=_ended)

# One row for each transaction that wrote jobs, see ``changes``: never empty, and in no backup.
job_changes = Table(
    "job_changes",
    metadata,
    _row_id(),
    *_make_required(number, "transaction", "written"),
    *_make_required(text, "payload"),
    sqlite_autoincrement=True,
)

keys = Table(
    "keys",
    metadata,
    *_key("id"),
    *_make_required(text, "name", "role"),
    *_make_optional(text, "project"),
    *_make_required(LargeBinary(), "token_hash"),
    *_make_required(text, "access_key_id"),
    *_make_required(LargeBinary(), "sealed_secret"),
    *_make_required(number, "created"),
    *_make_optional(number, "revoked", "last_used"),
    *_texts("policies"),
    # For links: the job that the key opens, and the time at which it expires.
    *_texts("job"),
    *_make_optional(number, "expires"),
)
Index("keys_token", keys.c.token_hash, unique=True)
Index("keys_access_key", keys.c.access_key_id, unique=True)

# Leases: work that only one server does at a time; in no backup.
leases = Table("leases", metadata, *_key("name"), *_make_required(text, "owner"), *_make_required(number, "until"))

# Signatures that servers accepted while several used the registry, by the minute of their dates; in no backup.
accepted_signatures = Table(
    "accepted_signatures",
    metadata,
    *(Column(name, BigInteger, primary_key=True, autoincrement=False) for name in ("minute", "digest")),
)
# One row: the server that has accepted signatures in its memory, and the first date that is accepted; in no backup.
signature_owner = Table(
    "signature_owner",
    metadata,
    Column("id", BigInteger, primary_key=True, autoincrement=False),
    *_texts("owner"),
    *_make_required(number, "floor"),
)

# Token buckets of several servers; in no backup.
rate_buckets = Table(
    "rate_buckets",
    metadata,
    *_key("name"),
    *_make_required(Double(), "level", "moment", "per_second", "burst", "granted", "spent"),
)

# The servers that use the replicas of a store, and the record of these replicas; in no backup.
store_servers = Table(
    "store_servers",
    metadata,
    Column("store", text, primary_key=True),
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    *_make_required(number, "state", "beat", "at"),
    *_make_required(LargeBinary(), "content"),
)
store_replicas = Table(
    "store_replicas",
    metadata,
    *_key("store"),
    *_make_required(number, "number"),
    *_make_required(text, "writer"),
    *_make_required(LargeBinary(), "content"),
)

# The newest report of each cluster's scheduler; in no backup.
schedulers = Table(
    "schedulers",
    metadata,
    *_key("project", "cluster", "kind"),
    *_make_required(number, "heard", "interval_ms"),
    *_texts("problem"),
    *_make_optional(number, "since"),
)

# Calls by account and operation, by month in the time zone of the settings.
usage = Table(
    "usage", metadata, *_key("month", "account", "api", "operation"), *_make_required(number, "calls", "failed")
)

# The last batch of counts of each server process, so that a repeated batch adds nothing; in no backup.
usage_writers = Table("usage_writers", metadata, *_key("writer"), *_make_required(number, "batch", "written"))

diagnostic_tasks = Table(
    "diagnostic_tasks",
    metadata,
    *_key("id"),
    *_texts("project", "type", "label", "state", "resource_group"),
    *_make_required(number, "created"),
    *_make_required(text, "body"),
)
Index("diagnostic_tasks_state", diagnostic_tasks.c.state, diagnostic_tasks.c.created, diagnostic_tasks.c.id)
Index("diagnostic_tasks_project", diagnostic_tasks.c.project, diagnostic_tasks.c.created, diagnostic_tasks.c.id)

# A task's request to the agent of each of its nodes; the answer is NULL until it arrives.
diagnostic_answers = Table(
    "diagnostic_answers",
    metadata,
    *_key("task", "node"),
    *_texts("project", "cluster"),
    *_make_required(number, "deadline"),
    *_make_optional(text, "answer"),
)
Index("diagnostic_answers_node", diagnostic_answers.c.node, diagnostic_answers.c.deadline, diagnostic_answers.c.task)

# The targets of the log lines of resource groups, and the progress of each.
shippers = Table(
    "shippers",
    metadata,
    *_key("id"),
    *_texts("project", "resource_group", "sink_project", "logstore"),
    *_make_required(number, "created"),
    *(
        Column(name, BigInteger, nullable=False, server_default="0")
        for name in ("reserved", "cursor", "shipped", "dropped", "rejected", "failures")
    ),
    *_texts("error"),
    *_make_optional(number, "oldest", "updated"),
)
Index("shippers_group", shippers.c.project, shippers.c.resource_group, unique=True)

# Alerts, silences and reported groups as JSON: they are few, and read whole.
alerts, silences, notification_groups = (
    Table(name, metadata, *_key(key), *_make_required(number, "updated"), *_make_required(text, "body"))
    for name, key in (("alerts", "fingerprint"), ("silences", "id"), ("notification_groups", "key"))
)

# Messages on their way to receivers; in no backup, from which they would be sent again.
alert_messages = Table(
    "alert_messages",
    metadata,
    _row_id(),
    *_make_required(text, "destination", "body"),
    *_make_required(number, "created", "tries", "next_try"),
    *_texts("error"),
)
Index("alert_messages_destination", alert_messages.c.destination, alert_messages.c.id)

FIRST_ROWS: Mapping[Table, Mapping[str, object]] = {
    job_changes: {"transaction": 0, "written": 0, "payload": "{}"},
    signature_owner: {"id": 1, "owner": "", "floor": 0},
}
"""Tables that are never empty, with the row of an empty database."""

UNLOGGED = (rate_buckets,)
"""Tables that PostgreSQL does not log: writes are cheaper, and a crash empties them."""

TABLES = (
    projects,
    jobs,
    replicas,
    tags,
    notes,
    allocations,
    nodes,
    events,
    keys,
    usage,
    diagnostic_tasks,
    diagnostic_answers,
    shippers,
    alerts,
    silences,
    notification_groups,
)
"""Every table of a backup, referenced ones first."""
