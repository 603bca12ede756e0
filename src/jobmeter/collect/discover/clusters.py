"""Find the Slurm cluster of a job by its control groups: clusters that share a node have equal job numbers.

Slurm passes the name of the cluster to each task in ``SLURM_CLUSTER_NAME``. The node's own cluster is ``ClusterName``
in its ``slurm.conf`` (https://slurm.schedmd.com/slurm.conf.html). Slurm uses the name in lower case.
"""

import logging
import re
from collections.abc import Mapping, Sequence

from jobmeter.collect import files
from jobmeter.collect.discover.groups import SlurmPlace
from jobmeter.collect.discover.member import Member, MembershipSource
from jobmeter.model.cluster import JobIds, make_cluster_job

VARIABLE = "SLURM_CLUSTER_NAME"
_PLACES = (
    "/etc/slurm/slurm.conf",
    "/run/slurm/conf/slurm.conf",  # for a node that fetches its configuration from the controller
    "/usr/local/etc/slurm.conf",
    "/opt/slurm/etc/slurm.conf",
)
"""Usual paths of Slurm's configuration, unless ``SLURM_CONF`` names a file."""
_NAME = re.compile(rb"^\s*ClusterName\s*=\s*([^\s#]+)", re.IGNORECASE | re.MULTILINE)
_MOST = 1_024
_log = logging.getLogger(__name__)


def read_own_cluster(environment: Mapping[str, str], places: Sequence[str] = _PLACES) -> str:
    """Return the name of this node's cluster by its ``slurm.conf``; empty if the file is not readable."""
    named = environment.get("SLURM_CONF", "")
    for place in (named,) if named else places:
        match = _NAME.search(files.read(place) or b"")
        if match:
            return match[1].decode(errors="replace").strip("\"'").lower()
    return ""


class SlurmClusters:
    """Makes the ids of Slurm's jobs.

    The id of a job of the node's own cluster is its number, that of another cluster's job ``NUMBER@CLUSTER``. With
    ``JobIds.CLUSTER`` every job has the latter form. If the own cluster is unknown, it is the first that a job names.
    """

    def __init__(self, own: str = "", ids: JobIds = JobIds.PLAIN) -> None:
        self._own = own
        self._ids = ids
        self._of_roots: dict[str, str] = {}
        self._others: set[str] = set()

    def find_cluster(self, number: str, place: SlurmPlace, variables: Mapping[str, str], parent: Member | None) -> str:
        """Return the cluster of a job; empty if unknown.

        Children are in the cluster of their parent, whatever their environment says. A task without a cluster is in
        that of the other tasks below its slurmd's group.
        """
        if parent is not None and parent.cluster and self.is_job(parent, number):
            return parent.cluster
        named = variables.get(VARIABLE, "").lower()
        if named:
            self._own = self._own or named
            self._log_other(named)
            if place.root and (place.root in self._of_roots or len(self._of_roots) < _MOST):
                self._of_roots[place.root] = named
        return named or self._of_roots.get(place.root, "")

    def make_job_id(self, number: str, cluster: str) -> str:
        """Return the id of a job with that number in that cluster; empty stands for the node's own."""
        cluster = cluster or self._own
        if cluster and (cluster != self._own or self._ids is JobIds.CLUSTER):
            return make_cluster_job(number, cluster)
        return number

    def _log_other(self, cluster: str) -> None:
        if cluster in {self._own, *self._others} or self._ids is JobIds.CLUSTER or len(self._others) >= _MOST:
            return
        self._others.add(cluster)
        example = make_cluster_job("NUMBER", cluster)
        _log.info("jobs of Slurm's cluster %s go by %s: this node's own cluster is %s", cluster, example, self._own)

    def is_job(self, member: Member, number: str) -> bool:
        """Return True if a member works for a job of that number, in its own cluster."""
        return member.source is MembershipSource.SLURM and member.owner.job == self.make_job_id(number, member.cluster)
