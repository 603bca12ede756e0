"""The phases of a job, derived from its record, its events, what it reported, and how its devices worked.

Everything here is arithmetic on facts that were read before. The spans are cut from one range, so that they fill it
without a gap and sum to its length, whatever the facts are.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

import msgspec
import numpy as np

from jobmeter.model.batch import Int64s
from jobmeter.model.event import Event
from jobmeter.model.grouping import group_pairs
from jobmeter.model.job import Job, JobState, JobView, Replica
from jobmeter.model.phase import JobPhases, Phase, PhaseSpan
from jobmeter.model.question import Question
from jobmeter.model.time import MINUTE
from jobmeter.query.checkpoints import CheckpointReports, find_checkpoints
from jobmeter.query.course import Course, Interval
from jobmeter.query.defaults import find_end
from jobmeter.query.idle import IDLE, WORK
from jobmeter.query.request import JobRef
from jobmeter.query.stretches import GAP_INTERVALS, find_steady_stretches, find_usual_interval

WRITES = ("disk.write", "network.transmit")
ALLOCATED = "Allocated"
"""Reason of the event that a job has its nodes. Its record starts then, its processes start after a prolog."""
SCHEDULED = frozenset({"Scheduled", ALLOCATED})
"""Reasons of events that a scheduler gave the job a place."""
PREPARING = frozenset({"Pulling", "Configuring", "Prolog", "PrologStarted"})
"""Reasons of events that begin the preparation of a place."""
_HOLD_MS, _SHORTEST = MINUTE, 0.1
"""Time in milliseconds for which devices have to work to have begun; of a shorter attempt, the share of it."""
_WORKING = 0.5
"""Share of that time for which they have to be measured at work."""
_UNSEEN_MS = MINUTE
"""Time within which agents discover a job: before a later first sample no process ran, or none was measured."""
_BACK = 0.5
"""Share of the highest step number: a lower number within an attempt means that the count begins again."""
MOST_RESTARTS = 500


class PhasesQuestion(msgspec.Struct, Question[JobPhases], frozen=True):
    """Question for the phases of a job over its life."""

    by_resource = of_job = True

    ref: JobRef


class RunQuestion(msgspec.Struct, Question["MeasuredRun"], frozen=True):
    """Question for the phases of a job, and for ``metrics`` of the job as a whole over its run."""

    by_resource = of_job = True

    ref: JobRef
    metrics: tuple[str, ...]


class MeasuredRun(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A job with its phases, its lines by metric, and the known types of its devices."""

    job: Job
    phases: JobPhases
    courses: Mapping[str, Course]
    types: frozenset[str] = frozenset()


class PhaseFacts(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The facts about a job besides its record.

    ``courses`` are lines of the job as a whole by metric. ``reports`` are times at which its program reported steps,
    ascending, ``steps`` the numbers of these steps, if it reported numbers.
    """

    courses: Mapping[str, Course] = msgspec.field(default_factory=dict)
    reports: Int64s = msgspec.field(default_factory=lambda: np.empty(0, np.int64))
    steps: Course | None = None
    events: Sequence[Event] = ()
    checkpoints: CheckpointReports = CheckpointReports()

    @property
    def work(self) -> Course | None:
        """Load of the devices as a share; None without measurements."""
        found = (self.courses.get(name) for name in WORK)
        return next((one for one in found if one is not None and len(one.time)), None)

    @property
    def writes(self) -> list[Course]:
        """Lines of the rates at which it writes to storage and to the network, as far as measured."""
        found = (self.courses.get(name) for name in WRITES)
        return [one for one in found if one is not None and len(one.time)]


class _Beginning(msgspec.Struct, frozen=True):
    """The first moments of a job; None if unknown."""

    submitted: int | None
    scheduled: int | None
    began: int | None


def compute_phases(view: JobView, facts: PhaseFacts, now_ms: int) -> JobPhases:
    """Return the phases of a job."""
    job = view.job
    beginning = _beginning(view, facts)
    start = min((one for one in msgspec.structs.astuple(beginning) if one is not None), default=now_ms)
    end = max(_end(job, now_ms), start)
    unknown: dict[str, str] = {}
    spans = list(_yield_before_start(beginning, start, end, unknown))
    if beginning.began is not None:
        spans += _run(view, facts, (min(max(beginning.began, start), end), end), unknown)
    spans = _merge_spans(spans)
    totals: dict[str, int] = {}
    for span in spans:
        totals[span.phase.value] = totals.get(span.phase.value, 0) + span.length
    ordered: dict[str, int] = {phase.value: totals[phase.value] for phase in Phase if phase.value in totals}
    return JobPhases(
        job=job.id, project=job.project, start=start, end=end, spans=spans, totals=ordered, unknown=unknown
    )


def _merge_spans(spans: Iterable[PhaseSpan]) -> list[PhaseSpan]:
    """Return the spans that are not empty. Adjacent spans of one phase and attempt become one."""
    found: list[PhaseSpan] = []
    for span in spans:
        if span.length <= 0:
            continue
        if found and (found[-1].phase, found[-1].attempt) == (span.phase, span.attempt):
            found[-1] = msgspec.structs.replace(found[-1], end=span.end)
        else:
            found.append(span)
    return found


def _end(job: Job, now_ms: int) -> int:
    end = find_end(job)
    if end is not None:
        return end
    return next((one for one in (job.last_sample, job.start, job.created) if one), 0) if job.state.finished else now_ms


def _beginning(view: JobView, facts: PhaseFacts) -> _Beginning:
    """Return the times of submission, of scheduling and of the first process, in this order."""
    job = view.job
    starts = [one.start for one in view.replicas if one.start is not None]
    began = min(starts, default=None)
    if began is None:
        began = next((time for time in (job.start, job.first_sample) if time is not None), None)
    elif began == job.first_sample and job.start is not None:
        # The registry gives a replica without a recorded start the time of its first sample.
        began = min(began, job.start)
    if job.state is JobState.QUEUED and not starts and job.first_sample is None:
        began = None
    submitted = job.created if job.created is not None and (began is None or job.created <= began) else None
    if began is None:
        return _Beginning(submitted, None, None)
    earliest = began if submitted is None else submitted
    times = sorted(
        (event.reason not in SCHEDULED, event.time, event.reason)
        for event in facts.events
        if event.reason in SCHEDULED | PREPARING and earliest <= event.time <= began
    )
    scheduled = times[0][1] if times else None
    if times and times[0][2] == ALLOCATED and (job.first_sample or 0) - began > _UNSEEN_MS:
        began = job.first_sample  # the first process is that of the first sample
    return _Beginning(submitted, scheduled, began)


def _yield_before_start(beginning: _Beginning, start: int, end: int, unknown: dict[str, str]) -> Iterator[PhaseSpan]:
    """Yield the spans before the first process."""
    began = end if beginning.began is None else min(max(beginning.began, start), end)
    if beginning.submitted is None:
        unknown[Phase.QUEUED.value] = "no record says when it was submitted"
    if beginning.scheduled is None:
        if beginning.submitted is not None and beginning.began is not None:
            unknown[Phase.PREPARE.value] = "no event says when it was scheduled: this time is part of queued"
            if beginning.submitted == beginning.began:
                del unknown[Phase.PREPARE.value]
        yield PhaseSpan(phase=Phase.QUEUED, start=start, end=began)
        return
    yield PhaseSpan(phase=Phase.QUEUED, start=start, end=min(beginning.scheduled, began))
    yield PhaseSpan(phase=Phase.PREPARE, start=min(beginning.scheduled, began), end=began)


def _run(view: JobView, facts: PhaseFacts, span: Interval, unknown: dict[str, str]) -> list[PhaseSpan]:
    """Return the spans from the first process to the end."""
    restarts = find_restarts(view.replicas, facts.work, span)
    windows = _windows(span, restarts)
    found: list[PhaseSpan] = []
    for attempt, window in enumerate(windows):
        last = attempt == len(windows) - 1
        after = (Phase.END if view.job.state.finished else Phase.TRAINING) if last else Phase.RESTART
        found += _attempt(facts, window, attempt, after, unknown)
        if not last:
            found.append(PhaseSpan(phase=Phase.RESTART, start=window[1], end=windows[attempt + 1][0], attempt=attempt))
    training, rest = _intervals(found, Phase.TRAINING), _intervals(found, Phase.END)
    saves = find_checkpoints(facts.work, facts.writes, facts.checkpoints, training, rest)
    if saves is None:
        unknown[Phase.CHECKPOINT.value] = "neither writes nor lines about checkpoints were found"
    repeats = _repeated_steps(facts.steps, windows) if restarts else []
    if repeats is None:
        unknown[Phase.REPEAT.value] = "the program reports no numbers of steps: repeated ones are part of training"
    found = [part for one in found for part in _cut(one, saves or (), Phase.CHECKPOINT)]
    return [part for one in found for part in _cut(one, repeats or (), Phase.REPEAT)]


def _intervals(spans: Iterable[PhaseSpan], phase: Phase) -> list[Interval]:
    return [(one.start, one.end) for one in spans if one.phase is phase and one.length > 0]


def _windows(span: Interval, restarts: Sequence[Interval]) -> list[Interval]:
    edges = [span[0], *(edge for one in restarts for edge in one), span[1]]
    return list(zip(edges[::2], edges[1::2], strict=True))


def find_restarts(replicas: Iterable[Replica], work: Course | None, span: Interval) -> list[Interval]:
    """Return the intervals in which the job stood still between two attempts: the longest ``MOST_RESTARTS`` of them.

    A replica is down from the end of an attempt to the start of the next one. The job stands still while all replicas
    of that time are down, or while its devices do not work.
    """
    own = group_pairs((one.name, one) for one in replicas)
    down = sorted(
        (end, after.start, name)
        for name, attempts in own.items()
        for before, after in pairwise(sorted(attempts, key=lambda one: one.attempt))
        if after.start is not None
        and (end := _find_attempt_end(before, after.start, work)) is not None
        and span[0] < end <= after.start < span[1]
    )
    lives = {name: _life(attempts) for name, attempts in own.items()}
    groups: list[tuple[int, int, set[str]]] = []
    for start, end, name in down:
        if groups and start <= groups[-1][1]:
            groups[-1] = (groups[-1][0], max(groups[-1][1], end), groups[-1][2] | {name})
        else:
            groups.append((start, end, {name}))
    found = [
        (start, end)
        for start, end, names in groups
        if names.issuperset(name for name, life in lives.items() if life[0] < end and start < life[1])
        or (work is not None and _measure_work_share(work, (start, end)) < _WORKING)
    ]
    longest = sorted(found, key=lambda one: one[0] - one[1])[:MOST_RESTARTS]
    return sorted(longest)


def _find_attempt_end(attempt: Replica, before_ms: int, work: Course | None) -> int | None:
    """Return the end of an attempt; of one that was lost the last sample before the next attempt."""
    if attempt.end is not None or work is None:
        return attempt.end
    last = int(np.searchsorted(work.time, before_ms)) - 1
    return min(int(work.until[last]), before_ms) if last >= 0 else None


def _life(attempts: Sequence[Replica]) -> tuple[float, float]:
    starts = [one.start for one in attempts if one.start is not None]
    ends = [np.inf if one.end is None else one.end for one in attempts]
    return min(starts, default=-np.inf), max(ends)


def _measure_work_share(work: Course, span: Interval) -> float:
    """Return the share of an interval in which devices were measured at work."""
    width = np.minimum(work.until, span[1]) - np.maximum(work.time, span[0])
    seconds = np.maximum(width, 0)[work.value > IDLE].sum()
    return float(seconds) / max(span[1] - span[0], 1)


def _attempt(
    facts: PhaseFacts, window: Interval, attempt: int, after: Phase, unknown: dict[str, str]
) -> Iterator[PhaseSpan]:
    """Yield the spans of one attempt; ``after`` is the phase of the time after its last work."""
    start, end = window
    work = facts.work
    reports = facts.reports[(facts.reports >= start) & (facts.reports < end)]
    first, last = (int(reports[0]), int(reports[-1])) if len(reports) else (None, None)
    worked = None if work is None else _find_working_interval(work, window)
    covered = _find_measured_interval(work, window, unknown)
    edges: list[tuple[Phase, int]] = []
    if worked is None and first is None:
        if work is None:
            unknown.setdefault(Phase.START.value, "neither its devices nor steps that it reports were measured")
            unknown.setdefault(Phase.TRAINING.value, unknown[Phase.START.value])
        edges = [(Phase.UNATTRIBUTED if work is None or covered is None else Phase.START, end)]
    elif worked is None or (first is not None and first < worked[0]):
        unknown.setdefault(Phase.FIRST_STEP.value, "its devices do not show when the first step began")
        stop = max(last or 0, 0 if worked is None else worked[1])
        edges = [(Phase.START, first or start), (Phase.TRAINING, stop), (after, end)]
    else:
        if first is None:
            unknown.setdefault(Phase.FIRST_STEP.value, "the program reports no steps: this time is part of training")
        edges = [(Phase.START, worked[0]), (Phase.FIRST_STEP, first or worked[0])]
        edges += [(Phase.TRAINING, max(worked[1], last or 0)), (after, end)]
    at = start
    for phase, edge in _add_unattributed(edges, covered, window):
        until = min(max(edge, at), end)
        yield PhaseSpan(phase=phase, start=at, end=until, attempt=attempt)
        at = until


def _find_working_interval(work: Course, window: Interval) -> Interval | None:
    """Return the interval from the first lasting work of devices to the end of their last work; None without any."""
    part = slice(*np.searchsorted(work.time, window).tolist())
    time, until = work.time[part], np.minimum(work.until[part], window[1])
    hold_ms = min(_HOLD_MS, _SHORTEST * (window[1] - window[0]))
    stretches = find_steady_stretches(time, until, work.value[part] > IDLE, hold_ms, _WORKING)
    if not stretches:
        return None
    last = int(np.flatnonzero(work.value[part] > IDLE)[-1])
    return stretches[0].start, max(stretches[-1].end, int(until[last]))


def _find_measured_interval(work: Course | None, window: Interval, unknown: dict[str, str]) -> Interval | None:
    """Return the part of a window in which devices were measured; None if they were not.

    It reaches the edges of the window if the first and the last sample are close to them.
    """
    if work is None:
        return window
    part = slice(*np.searchsorted(work.time, window).tolist())
    time = work.time[part]
    if not len(time):
        unknown.setdefault(Phase.START.value, "its devices were not measured")
        return None
    tolerance = max(GAP_INTERVALS * find_usual_interval(time), _UNSEEN_MS)
    first, last = int(time[0]), int(work.until[part][-1])
    late = first - window[0] > tolerance and bool(work.value[part][0] > IDLE)
    early = window[1] - last > tolerance
    if late:
        unknown.setdefault(Phase.START.value, "its devices were measured only after they had begun to work")
    if early:
        unknown.setdefault(Phase.END.value, "its devices were not measured any more")
    return first if late else window[0], last if early else window[1]


def _add_unattributed(
    edges: Sequence[tuple[Phase, int]], covered: Interval | None, window: Interval
) -> Iterator[tuple[Phase, int]]:
    """Yield the edges with the time before and after all measurements as unattributed."""
    if covered is None:
        yield from edges
        return
    if covered[0] > window[0]:
        yield Phase.UNATTRIBUTED, covered[0]
    for phase, until in edges[:-1]:
        yield phase, until
    phase, until = edges[-1]
    if covered[1] < window[1]:
        yield phase, covered[1]
        phase = Phase.UNATTRIBUTED
    yield phase, until


_CUT = {Phase.CHECKPOINT: frozenset({Phase.TRAINING, Phase.END}), Phase.REPEAT: frozenset({Phase.TRAINING})}
"""Phases that may contain checkpoints, and phases that may contain repeated steps."""


def _cut(span: PhaseSpan, intervals: Sequence[Interval], phase: Phase) -> Iterator[PhaseSpan]:
    """Yield the parts of a span: intervals of another phase, if the span may contain it, and the rest."""
    at = span.start
    for start, end in intervals if span.phase in _CUT[phase] else ():
        begin, until = max(start, at), min(end, span.end)
        if begin >= until:
            continue
        yield msgspec.structs.replace(span, start=at, end=begin)
        yield msgspec.structs.replace(span, phase=phase, start=begin, end=until)
        at = until
    yield msgspec.structs.replace(span, start=at)


def _repeated_steps(steps: Course | None, attempts: Sequence[Interval]) -> list[Interval] | None:
    """Return for each attempt but the first the interval from its start until it passes the highest step before it.

    ``steps`` are numbers of steps as the program reported them. None if they do not determine it: an attempt has
    none, or they start again within one. An attempt that repeats nothing has no interval.
    """
    found: list[Interval] = []
    highest = -np.inf
    for start, end in attempts:
        part = slice(*np.searchsorted(steps.time, (start, end)).tolist()) if steps is not None else slice(0, 0)
        if steps is None or not len(steps.time[part]):
            return None
        value = steps.value[part]
        if (value < _BACK * np.maximum.accumulate(value)).any():
            return None
        new = np.flatnonzero(value > highest)
        until = int(steps.time[part][new[0]]) if len(new) else end
        if np.isfinite(highest) and until > start and value[0] <= highest:
            found.append((start, until))
        highest = max(highest, float(value.max()))
    return found
