"""Which replica a pod is, in the database: by the records of the watcher of its cluster."""

from collections.abc import Sequence

import msgspec
import sqlalchemy as sa

from jobmeter.model.pod import WATCHED_LABEL, PodReplica
from jobmeter.registry.database import Database
from jobmeter.registry.schema import jobs, replicas
from jobmeter.registry.statements import within

_replica, _job = replicas.c, jobs.c


class PodTable:
    """Pods. Every method is one transaction and may be called from any thread; see ``Registry``."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def find(self, projects: frozenset[str] | None, cluster: str, node: str, uids: Sequence[str]) -> list[PodReplica]:
        """Those of these pods of a node that a watcher recorded, by uid.

        What an agent reported by itself, under the name of the pod, is none of them. A replica that was not placed on a
        node yet is nobody's but its pod's.
        """
        question = (
            sa.select(
                _replica.pod_id.label("uid"),
                _replica.project,
                _replica.job,
                _replica.name.label("replica"),
                sa.func.min(_replica.attempt).label("first"),
                sa.func.max(_replica.rank).label("rank"),
                _job.labels,
            )
            .join_from(replicas, jobs, sa.and_(_job.project == _replica.project, _job.id == _replica.job))
            # The first condition is that of the index; a database uses it only where the question says so, too.
            .where(
                _replica.pod_id != "",
                _replica.pod_id.in_(sorted(set(uids))),
                _replica.node.in_(["", node]),
                _replica.cluster.in_(["", cluster]),
                within(_replica.project, projects),
            )
            .group_by(_replica.pod_id, _replica.project, _replica.job, _replica.name, _job.labels)
            .order_by(_replica.pod_id, _replica.project, _replica.job, _replica.name)
        )
        with self._database.read() as connection:
            rows = connection.execute(question).all()
        found: dict[str, PodReplica] = {}
        for row in rows:
            if row.labels and WATCHED_LABEL in msgspec.json.decode(row.labels, type=dict[str, str]):
                found.setdefault(row.uid, msgspec.convert(row, PodReplica, from_attributes=True))
        return list(found.values())
