"""Find the job of a process: by its tags, Slurm, Kubernetes, a rule, torchrun, else by its parent."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from typing import NamedTuple, TypedDict

from jobmeter.collect import files
from jobmeter.collect.accelerators.registry import list_device_variables
from jobmeter.collect.base import Owner
from jobmeter.collect.cgroup.paths import Groups, read_groups
from jobmeter.collect.discover.clusters import SlurmClusters
from jobmeter.collect.discover.containers import ContainerRuns
from jobmeter.collect.discover.environ import find_local_rank, find_rank, parse_number, read_environment
from jobmeter.collect.discover.groups import PodPlace, SlurmPlace, find_pod_place, find_slurm_place
from jobmeter.collect.discover.member import Member, MembershipSource
from jobmeter.collect.discover.owners import JobOwners, Principals, ProcessOwner
from jobmeter.collect.discover.rules import JobRule, RuleMatch, RuleSubject, find_first_match
from jobmeter.collect.process.stat import ProcessStat, find_user_name, read_real_user
from jobmeter.errors import InvalidRequestError
from jobmeter.model.pod import make_pod_job
from jobmeter.model.series import check_job_id, check_name

_WORKER = re.compile(
    r"(?P<job>.+)-(?P<role>master|worker|launcher|chief|ps|evaluator|scheduler|server|head)-(?P<index>\d+)"
)
_ONE_TASK = re.compile(r"1(\(x\d+\))?")
"""SLURM_TASKS_PER_NODE of a job with one task on each node: ``1`` or ``1(x4)``."""
_NO_DEVICE = {"all", "none", "void", "no-dev-files"}

Variables = dict[str, str]


class _Undecided(Enum):
    """Decision that a source leaves to the next one."""

    UNDECIDED = "undecided"


_UNDECIDED = _Undecided.UNDECIDED
_Decision = Member | None | _Undecided


class NodeClassifier:
    """Classifier of a node. ``node`` makes the names of two tasks unique if nothing else does."""

    def __init__(
        self,
        node: str,
        proc_root: str = "/proc",
        containers: ContainerRuns | None = None,
        rules: Sequence[JobRule] = (),
        clusters: SlurmClusters | None = None,
        owners: JobOwners | None = None,
    ) -> None:
        self._rules = rules
        self._owners = owners or JobOwners()
        self._clusters = clusters or SlurmClusters()
        self._node = node
        self._proc = proc_root
        self._containers = containers or ContainerRuns()
        self._sources: tuple[Callable[[_Candidate], _Decision], ...] = (
            self._classify_by_tags,
            self._classify_by_slurm_group,
            self._classify_by_pod,
            self._classify_by_slurm_environment,
            self._classify_by_rule,
            self._classify_by_torchrun,
        )
        """Sources of memberships, most trusted first."""

    def find_member(self, stat: ProcessStat, parent: Member | None) -> Member | None:
        """Classify a process. A process with an illegal job or replica name belongs to no job."""
        if stat.key.pid == 2 or stat.parent == 2:
            return None  # the kernel's own threads
        groups = read_groups(self._proc, stat.key.pid)
        if groups is None:
            return parent
        variables = read_environment(self._proc, stat.key.pid)
        try:
            slurm, pod = find_slurm_place(groups), find_pod_place(groups)
            member = self._find_member(_Candidate(stat.key.pid, groups, variables, parent, slurm, pod))
        except InvalidRequestError:
            return None
        group = groups.get("devices", "")
        return member if member is None or member.device_group == group else replace(member, device_group=group)

    def take_displaced(self) -> set[str]:
        """Return the jobs whose members may have changed since the last call."""
        return self._owners.take_displaced()

    def _find_member(self, candidate: "_Candidate") -> Member | None:
        """Return the membership by the first source that decides, else the parent's."""
        for source in self._sources:
            found = source(candidate)
            if not isinstance(found, _Undecided):
                return found
        return candidate.parent

    def _classify_by_tags(self, candidate: "_Candidate") -> "_Decision":
        variables, parent, place = candidate.variables, candidate.parent, candidate.place
        if "JOBMETER_JOB_ID" in variables:
            tagged = _make_tagged_member(variables, place.groups if place else {})
            if self._accepts(tagged.owner.job, candidate):
                return tagged
        return parent if parent is not None and parent.source is MembershipSource.TAGS else _UNDECIDED

    def _classify_by_slurm_group(self, candidate: "_Candidate") -> "_Decision":
        return _UNDECIDED if candidate.slurm is None else self._make_slurm_member(candidate, candidate.slurm)

    def _classify_by_pod(self, candidate: "_Candidate") -> "_Decision":
        pod = candidate.pod
        if pod is None:
            return _UNDECIDED
        run = self._containers.find_number(pod.uid, pod.container)
        # A sandbox only holds the pod's network. A container's link appears shortly after its process.
        if run is None:
            return None
        member = _make_pod_member(pod, run, candidate.variables, candidate.parent)
        guess = member.guess
        return member if guess is None or self._accepts(guess.job, candidate) else replace(member, guess=None)

    def _classify_by_slurm_environment(self, candidate: "_Candidate") -> "_Decision":
        """Classify a process of a cluster that tracks processes without groups."""
        if {"SLURM_JOB_ID", "SLURM_PROCID"} <= candidate.variables.keys():
            return self._make_slurm_member(candidate, SlurmPlace()) or _UNDECIDED
        return _UNDECIDED

    def _classify_by_rule(self, candidate: "_Candidate") -> "_Decision":
        variables, parent = candidate.variables, candidate.parent
        if parent is not None and parent.source is MembershipSource.RULE and not parent.groups:
            return _child_of_command(parent, variables)
        match = find_first_match(self._rules, RuleSubject(self._proc, candidate.pid, candidate.groups))
        return _UNDECIDED if match is None else _classify_by_rule(match, variables)

    def _classify_by_torchrun(self, candidate: "_Candidate") -> "_Decision":
        if candidate.variables.get("TORCHELASTIC_RUN_ID", "none") == "none":
            return _UNDECIDED
        member = _classify_by_torchrun(candidate.variables)
        return member if self._accepts(member.owner.job, candidate) else _UNDECIDED

    def _accepts(self, job: str, candidate: "_Candidate") -> bool:
        """Return True if a process may name this job in its environment: see ``JobOwners``."""
        if candidate.parent is not None and candidate.parent.owner.job == job:
            return True
        return self._owners.accepts(job, self._read_principals(candidate))

    def _read_principals(self, candidate: "_Candidate") -> Principals:
        """Return the principals of a process; empty if it has ended."""
        place = candidate.pod or candidate.slurm
        group = tuple(ProcessOwner("group", path) for path in sorted({*place.groups.values()})[:1]) if place else ()
        if candidate.pod is not None:
            return ProcessOwner("namespace", self._containers.find_namespace(candidate.pod.uid)), *group
        uid = read_real_user(self._proc, candidate.pid)
        return () if uid is None else (ProcessOwner("user", str(uid)), *group)

    def _make_slurm_member(self, candidate: "_Candidate", place: SlurmPlace) -> Member | None:
        variables, parent = candidate.variables, candidate.parent
        job = place.job or variables.get("SLURM_JOB_ID", "")
        if place.step == "extern":
            return None
        beside = parent is not None and parent.source is MembershipSource.SLURM and parent.groups == place.groups != {}
        if not place.job and parent is not None and beside and not self._clusters.is_job(parent, job):
            # Slurm 26.05: only the environment has the number, and a child may have changed its own.
            return parent
        if not job:
            return None
        cluster = self._clusters.find_cluster(job, place, variables, parent)
        task = parse_number(variables, "SLURM_PROCID")
        if task is None and parent is not None and self._clusters.is_job(parent, job):
            return parent
        if task is None:
            if place.task is None or files.read_text(f"{self._proc}/{candidate.pid}/comm").startswith("slurmstepd"):
                # The job's own daemon, or a process between its fork and its exec, whose task is not known yet.
                return None
            # The program may have begun after its environment was read.
            variables = read_environment(self._proc, candidate.pid)
            task = parse_number(variables, "SLURM_PROCID")
        replica = f"{self._node}-task-{place.task}" if task is None else f"worker-{task}"
        restarts = parse_number(variables, "SLURM_RESTART_COUNT") or 0
        owner = Owner(check_job_id(self._clusters.make_job_id(job, cluster)), check_name(replica, "replica"), restarts)
        if owner.job == place.job:
            self._owners.assign(owner.job, self._read_principals(candidate))
        elif not self._accepts(owner.job, candidate):
            return None
        return Member(
            owner=owner,
            source=MembershipSource.SLURM,
            cluster=cluster,
            step=place.step or variables.get("SLURM_STEP_ID", ""),
            job_start=variables.get("SLURM_JOB_START_TIME", ""),
            rank=task,
            groups=place.groups,
            job_groups=place.job_groups if _ONE_TASK.fullmatch(variables.get("SLURM_TASKS_PER_NODE", "")) else {},
            name=variables.get("SLURM_JOB_NAME", ""),
            user=variables.get("SLURM_JOB_USER", "") or ("" if place.uid is None else find_user_name(place.uid)),
            kind="Slurm",
            **_read_process_fields(variables),
        )


class _Candidate(NamedTuple):
    """Process to classify: its control groups and places in them, its environment, and its parent's membership."""

    pid: int
    groups: Groups
    variables: Variables
    parent: Member | None
    slurm: SlurmPlace | None
    pod: PodPlace | None

    @property
    def place(self) -> SlurmPlace | PodPlace | None:
        """The scheduler's place, if any."""
        return self.slurm or self.pod


def _make_tagged_member(variables: Variables, groups: Mapping[str, str]) -> Member:
    replica = variables.get("JOBMETER_REPLICA") or f"worker-{find_rank(variables) or 0}"
    owner = Owner(
        check_job_id(variables["JOBMETER_JOB_ID"]),
        check_name(replica, "replica"),
        parse_number(variables, "JOBMETER_ATTEMPT") or 0,
    )
    measured = variables.get("JOBMETER_MEASURED") == "run"
    return Member(
        owner=owner,
        source=MembershipSource.TAGS,
        rank=find_rank(variables),
        groups={} if measured else groups,
        measured=measured,
        **_read_process_fields(variables),
    )


def _make_pod_member(place: PodPlace, run: int, variables: Variables, parent: Member | None) -> Member:
    if parent is not None and parent.pod_id == place.uid and parent.groups == place.groups:
        return replace(parent, **_read_process_fields(variables))
    return Member(
        owner=Owner(make_pod_job(place.uid), "worker-0", run),
        source=MembershipSource.KUBERNETES,
        rank=find_rank(variables),
        groups=place.groups,
        kind="Pod",
        pod_id=place.uid,
        guess=_find_owner_by_host_name(variables),
        **_read_process_fields(variables),
    )


def _classify_by_rule(match: RuleMatch, variables: Variables) -> Member:
    # A group is one replica, however many ranks it contains: its counters cover all of them.
    own = None if match.groups else find_rank(variables)
    return Member(
        owner=Owner(check_job_id(match.job), check_name(f"worker-{own or 0}", "replica")),
        source=MembershipSource.RULE,
        rank=own,
        groups=match.groups,
        name=match.name,
        user=match.user,
        kind=match.kind,
        **_read_process_fields(variables),
    )


def _child_of_command(parent: Member, variables: Variables) -> Member:
    """Return the membership of a command's child: the command's, except for ranks started by a launcher."""
    own = find_rank(variables)
    owner = parent.owner
    if parent.rank is None and own is not None:
        owner = replace(owner, replica=f"worker-{own}")
    return replace(
        parent, owner=owner, rank=own if parent.rank is None else parent.rank, **_read_process_fields(variables)
    )


def _find_owner_by_host_name(variables: Variables) -> Owner | None:
    """Return the replica in a pod's host name, as Kubeflow's operator and indexed Jobs name pods; None without one."""
    host = variables.get("HOSTNAME", "")
    match = _WORKER.fullmatch(host)
    index = parse_number(variables, "JOB_COMPLETION_INDEX")
    if match:
        return Owner(check_job_id(match["job"]), check_name(f"{match['role']}-{match['index']}", "replica"))
    if index is not None and host.endswith(f"-{index}"):
        return Owner(check_job_id(host.removesuffix(f"-{index}")), f"worker-{index}")
    return None


def _classify_by_torchrun(variables: Variables) -> Member:
    group = parse_number(variables, "GROUP_RANK") or 0
    owner = Owner(
        check_job_id(f"torchrun-{variables['TORCHELASTIC_RUN_ID']}"),
        f"worker-{group}",
        parse_number(variables, "TORCHELASTIC_RESTART_COUNT") or 0,
    )
    return Member(
        owner=owner, source=MembershipSource.TORCHRUN, rank=group, kind="PyTorchJob", **_read_process_fields(variables)
    )


class _OfProcess(TypedDict):
    process_rank: int | None
    local_rank: int | None
    devices: tuple[tuple[str, str], ...]


def _read_process_fields(variables: Variables) -> _OfProcess:
    """Return the fields of the process itself, not of its replica."""
    return {
        "process_rank": find_rank(variables),
        "local_rank": find_local_rank(variables),
        "devices": tuple(
            (name, text)
            for name in list_device_variables()
            if (text := variables.get(name, "")) and text not in _NO_DEVICE
        ),
    }
