"""The replicas of pods in the database, from the records of their cluster's watcher."""

from collections.abc import Sequence
from typing import Any

import msgspec
import sqlalchemy as sa

from jobmeter.model.job import JobState
from jobmeter.model.pod import WATCHED_LABEL, PodReplica
from jobmeter.registry.database import Database
from jobmeter.registry.schema import jobs, replicas
from jobmeter.registry.statements import match_names

_replica, _job = replicas.c, jobs.c
Row = sa.Row[tuple[Any, ...]]
_FINISHED = sorted(state.value for state in JobState if state.finished)


class PodTable:
    """Pods. Every method is one transaction and may be called from any thread; see ``Registry``."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def find(self, projects: frozenset[str] | None, cluster: str, node: str, uids: Sequence[str]) -> list[PodReplica]:
        """Return the replicas of these pods of a node, by uid, for pods that a watcher recorded.

        Records that an agent made under the name of the pod are ignored. A replica without a node matches its pod on
        any node. If jobs of several projects claim a pod, none gets it: anybody who may write into a project can name
        any pod. Within a project the job that was written last gets it. A replica that has ended counts only if no
        other replica has that pod.
        """
        question = (
            sa.select(
                _replica.pod_id.label("uid"),
                _replica.project,
                _replica.job,
                _replica.name.label("replica"),
                sa.func.min(_replica.attempt).label("first"),
                sa.func.max(_replica.rank).label("rank"),
                sa.func.max(sa.case((_replica.state.in_(_FINISHED), 0), else_=1)).label("living"),
                _job.labels,
                _job.updated,
            )
            .join_from(replicas, jobs, sa.and_(_job.project == _replica.project, _job.id == _replica.job))
            # The first condition repeats that of the index: a database uses a partial index only then.
            .where(
                _replica.pod_id != "",
                _replica.pod_id.in_(sorted(set(uids))),
                _replica.node.in_(["", node]),
                _replica.cluster.in_(["", cluster]),
                match_names(_replica.project, projects),
            )
            .group_by(_replica.pod_id, _replica.project, _replica.job, _replica.name, _job.labels, _job.updated)
            .order_by(_replica.pod_id, _replica.project, _replica.job, _replica.name)
        )
        with self._database.read() as connection:
            rows = connection.execute(question).all()
        claims: dict[str, list[Any]] = {}
        for row in rows:
            if row.labels and WATCHED_LABEL in msgspec.json.decode(row.labels, type=dict[str, str]):
                claims.setdefault(row.uid, []).append(row)
        found = filter(None, map(_choose_undisputed, claims.values()))
        return [msgspec.convert(row, PodReplica, from_attributes=True) for row in found]


def _choose_undisputed(claims: Sequence[Row]) -> Row | None:
    """Return the claim to a pod that counts; None if several projects claim it."""
    living = [row for row in claims if row.living] or claims
    if len({row.project for row in living}) > 1:
        return None
    return max(living, key=lambda row: row.updated)
