"""Collect evidence about the ranks of a job on this node, within limits of time and size."""

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Event

from msgspec.structs import replace

from jobmeter.collect import files
from jobmeter.collect.base import Owner
from jobmeter.collect.discover.environ import find_rank as rank_of
from jobmeter.collect.discover.environ import read_environment
from jobmeter.collect.discover.member import Process
from jobmeter.collect.stacks.kernel import count_context_switches, read_kernel_state
from jobmeter.collect.stacks.python import find_py_spy, read_python_stacks
from jobmeter.collect.stacks.ras import query_ras
from jobmeter.collect.stacks.recorder import VARIABLES, read_dump, request_dump
from jobmeter.model.grouping import group_pairs
from jobmeter.model.stacks import MOST_RANKS, NodeEvidence, RankEvidence

BUDGET_SECONDS = 25.0
"""Longest time in seconds of one collection. Later processes are left out."""
BETWEEN_SECONDS = 1.0
"""Seconds between the two readings of a rank, which show whether it moves."""
LEAST_SECONDS = 10.0
"""Seconds for which the evidence of a job is reused."""
_MOST_ENVIRONMENT = 1024 * 1024
_LONGEST = 4_096
_RAS = "NCCL_RAS_ADDR"
_PYTHON = "python"

RankKey = tuple[str, int, int]
"""(replica, attempt, rank or -1)."""


@dataclass(frozen=True, slots=True)
class GoneRank:
    """Rank whose process has ended. ``exit_code`` is its exit status as a shell shows it, absent if unknown."""

    owner: Owner
    rank: int | None = None
    pid: int = 0
    exit_code: int | None = None


@dataclass(slots=True)
class _Rank:
    """Rank, and the process that does its work."""

    key: RankKey
    pid: int
    variables: Mapping[str, str] = field(default_factory=dict)


class StackCollector:
    """Collects on request, in one thread, one process after the other.

    ``processes`` returns the processes of a job with their owners, ``gone`` the ranks whose end was seen.
    """

    def __init__(
        self,
        processes: Callable[[str], Iterable[tuple[Process, Owner]]],
        gone: Callable[[str], Sequence[GoneRank]] = lambda _job: (),
        *,
        proc_root: str = "/proc",
        between: float = BETWEEN_SECONDS,
        stop: Event | None = None,
    ) -> None:
        self.processes = processes
        self._gone = gone
        self._proc = proc_root
        self._between = between
        self._stop = stop or Event()
        self._last: tuple[str, float, NodeEvidence | None] = ("", float("-inf"), None)

    def collect(self, job: str) -> NodeEvidence | None:
        """Return the evidence of a job's ranks on this node; None if the node never had any of them."""
        before, at, evidence = self._last
        if before == job and time.monotonic() - at < LEAST_SECONDS:
            return evidence
        evidence = self._collect_evidence(job)
        self._last = (job, time.monotonic(), evidence)
        return evidence

    def _collect_evidence(self, job: str) -> NodeEvidence | None:
        end = time.monotonic() + BUDGET_SECONDS
        ranks = self.find_ranks(list(self.processes(job)))
        gone = [
            RankEvidence(
                replica=one.owner.replica,
                attempt=one.owner.attempt,
                rank=one.rank,
                pid=one.pid,
                state="X",
                exit_code=one.exit_code,
            )
            for one in self._gone(job)
            if one.owner.replica not in {rank.key[0] for rank in ranks}
        ]
        if not ranks and not gone:
            return None
        missing = []
        if len(ranks) > MOST_RANKS:
            missing.append(f"no evidence of {len(ranks) - MOST_RANKS} more ranks on the node: {MOST_RANKS} at most")
            ranks = ranks[:MOST_RANKS]
        requested = time.time()  # noqa: TID251 - compared with the times of files
        for one in ranks:
            request_dump(one.pid, max(one.key[2], 0), one.variables, self._proc)
        py_spy = find_py_spy()
        found = [self._describe_rank(one, py_spy, end) for one in ranks]
        switches = [count_context_switches(one.pid, self._proc) for one in ranks]
        self._stop.wait(self._between)
        found = [self._look_again(one, before, py_spy, end) for one, before in zip(found, switches, strict=True)]
        found = [
            self._add_recorder_dump(evidence, one, requested, end) for evidence, one in zip(found, ranks, strict=True)
        ]
        ras, problem = self._query_ras(ranks)
        if problem:
            missing.append(problem)
        return NodeEvidence([*found, *gone][:MOST_RANKS], ras, missing)

    def _describe_rank(self, one: _Rank, py_spy: str | None, end: float) -> RankEvidence:
        replica, attempt, rank = one.key
        evidence = RankEvidence(replica=replica, attempt=attempt, rank=None if rank < 0 else rank, pid=one.pid)
        state = read_kernel_state(one.pid, self._proc)
        if state is None:
            return replace(evidence, state="X")
        evidence = replace(evidence, **state._asdict())
        if time.monotonic() > end:
            note = "no Python stacks: the time for the node's ranks was over before this one's turn"
            return replace(evidence, missing=[note, *evidence.missing])
        threads, problem = read_python_stacks(one.pid, py_spy)
        return replace(evidence, threads=threads, missing=[*([problem] if problem else []), *evidence.missing])

    def _look_again(self, evidence: RankEvidence, switches: int | None, py_spy: str | None, end: float) -> RankEvidence:
        """Add to the evidence whether the rank has moved since the first reading."""
        if time.monotonic() > end or evidence.state == "X":
            return evidence
        now = count_context_switches(evidence.pid, self._proc)
        moved = None if switches is None or now is None else now > switches
        if evidence.main and not moved:
            threads, _ = read_python_stacks(evidence.pid, py_spy)
            later = replace(evidence, threads=threads).main
            moved = later != evidence.main if later else moved
        return replace(evidence, moved=moved)

    def _add_recorder_dump(self, evidence: RankEvidence, one: _Rank, requested: float, end: float) -> RankEvidence:
        if time.monotonic() > end or evidence.state == "X" or not one.variables:
            return evidence
        groups, problem = read_dump(one.pid, max(one.key[2], 0), one.variables, requested, self._proc)
        return replace(evidence, groups=groups, missing=[*evidence.missing, *([problem] if problem else [])])

    def _query_ras(self, ranks: Sequence[_Rank]) -> tuple[list[str], str]:
        address = next((one.variables[_RAS] for one in ranks if one.variables.get(_RAS)), "")
        return query_ras([one.pid for one in ranks], address, self._proc)

    def find_ranks(self, processes: Sequence[tuple[Process, Owner]]) -> list[_Rank]:
        """Return the process of each rank, sorted by replica and rank."""
        members = group_pairs(
            ((owner.replica, owner.attempt, self._find_rank(process)), process)
            for process, owner in processes
            if not process.stat.ended
        )
        members = _leave_out_launchers(members)
        chosen = ((key, self._find_worker(own)) for key, own in members.items())
        ranks = [_Rank(key, pid, self._read_variables(pid)) for key, pid in chosen]
        return sorted(ranks, key=lambda one: (len(one.key[0]), one.key))

    def _find_rank(self, process: Process) -> int:
        if process.member.process_rank is not None:
            return process.member.process_rank
        found = rank_of(read_environment(self._proc, process.stat.key.pid))
        if found is None:
            found = process.member.rank
        return -1 if found is None else found

    def _find_worker(self, own: Sequence[Process]) -> int:
        """Return the process that does the work of a rank: the first one that is no shell and no launcher."""
        by_parent = group_pairs((one.stat.parent, one) for one in own)
        pids = {one.stat.key.pid for one in own}
        place = min(own, key=lambda one: (one.stat.parent in pids, one.stat.key.start, one.stat.key.pid))
        while not self._is_python(place.stat.key.pid):
            children = by_parent.get(place.stat.key.pid)
            if not children:
                break
            place = max(children, key=lambda one: one.stat.cpu_ticks)
        return place.stat.key.pid

    def _is_python(self, pid: int) -> bool:
        program = files.read_link_target(f"{self._proc}/{pid}/exe") or files.read_text(f"{self._proc}/{pid}/comm")
        return program.rpartition("/")[2].startswith(_PYTHON)

    def _read_variables(self, pid: int) -> dict[str, str]:
        """Return the variables of a process that name its flight recorder and its RAS."""
        wanted = {name.encode(): name for name in (*VARIABLES, _RAS)}
        found = {}
        for entry in (files.read(f"{self._proc}/{pid}/environ", _MOST_ENVIRONMENT) or b"").split(b"\0"):
            name, _, value = entry.partition(b"=")
            if name in wanted and len(value) <= _LONGEST:
                found[wanted[name]] = os.fsdecode(value)
        return found


def _leave_out_launchers(members: dict[RankKey, list[Process]]) -> dict[RankKey, list[Process]]:
    """Leave out parents of other ranks, and processes without a rank in replicas whose processes have ranks."""
    rank_by_pid = {one.stat.key.pid: key for key, own in members.items() for one in own}
    parents = {
        one.stat.parent
        for key, own in members.items()
        for one in own
        if rank_by_pid.get(one.stat.parent, key) != key and rank_by_pid[one.stat.parent][0] == key[0]
    }
    kept = {key: [one for one in own if one.stat.key.pid not in parents] for key, own in members.items()}
    with_ranks = {replica for (replica, _, rank), own in kept.items() if rank >= 0 and own}
    return {key: own for key, own in kept.items() if own and (key[2] >= 0 or key[0] not in with_ranks)}
