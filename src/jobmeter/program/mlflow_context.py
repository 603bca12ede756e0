"""Plug-in of MLflow: tags each new run with the job, replica, attempt and node that run it.

MLflow finds it by the entry point ``mlflow.run_context_provider``. It follows the agent's rules, imports no MLflow, and
adds no tags where no scheduler or ``jobmeter run`` is found.
"""

import os

from jobmeter.collect.discover.classify import NodeClassifier
from jobmeter.collect.discover.member import MembershipSource
from jobmeter.collect.launch.tracking import run_tags
from jobmeter.collect.process.stat import read_stat

_PROC = "/proc"


class JobRunContext:
    """Implements MLflow's ``RunContextProvider``."""

    def in_context(self) -> bool:
        """Return True if the process belongs to a job."""
        return bool(self.tags())

    def tags(self) -> dict[str, str]:
        """Return the tags; none outside a job."""
        from jobmeter.cli.run import read_node_name  # noqa: PLC0415 - MLflow imports this module at its start

        stat = read_stat(_PROC, os.getpid())
        node = read_node_name()
        member = None if stat is None else NodeClassifier(node, _PROC).find_member(stat, None)
        if member is None:
            return {}
        # Only the server knows which job a pod belongs to, unless the pod's name gives it.
        owner = member.guess if member.source is MembershipSource.KUBERNETES else member.owner
        return {} if owner is None else run_tags(owner.job, owner.replica, owner.attempt, node)
