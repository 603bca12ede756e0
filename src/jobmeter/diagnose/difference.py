"""Explains why one job took longer than another: by cause, in parts that sum to the whole difference, and in words."""

from collections.abc import Mapping, Sequence

from jobmeter.access.principal import Scope
from jobmeter.diagnose.difference_text import DifferenceFigures, format_sentence
from jobmeter.diagnose.work_time import METRICS, WorkTime, split_work
from jobmeter.model.phase import CausePart, JobPhases, Phase, PhaseCause, PhaseDifference, PhaseSpan
from jobmeter.query.course import Interval
from jobmeter.query.execute import Executor
from jobmeter.query.phases import WRITES, MeasuredRun, RunQuestion
from jobmeter.query.request import JobRef

_OF_PHASE: Mapping[Phase, PhaseCause] = {
    Phase.QUEUED: PhaseCause.QUEUE,
    Phase.PREPARE: PhaseCause.PREPARE,
    Phase.START: PhaseCause.START,
    Phase.FIRST_STEP: PhaseCause.FIRST_STEP,
    Phase.CHECKPOINT: PhaseCause.CHECKPOINT,
    Phase.RESTART: PhaseCause.RESTART,
    Phase.REPEAT: PhaseCause.RESTART,
    Phase.END: PhaseCause.END,
    Phase.UNATTRIBUTED: PhaseCause.UNATTRIBUTED,
}
_BEFORE = frozenset({Phase.QUEUED, Phase.PREPARE})
_AGAIN = frozenset({Phase.START, Phase.FIRST_STEP})


def explain_differences(executor: Executor, refs: Sequence[JobRef], scope: Scope) -> list[PhaseDifference]:
    """Return the reasons for each later job's longer or shorter run time than the first one's.

    Raises as ``Executor.run`` does.
    """
    metrics = tuple(dict.fromkeys((*METRICS, *WRITES)))
    first, *others = (executor.run(RunQuestion(ref, metrics), scope) for ref in refs)
    return [explain_difference(first, other, ("A", chr(ord("B") + at))) for at, other in enumerate(others)]


def explain_difference(a: MeasuredRun, b: MeasuredRun, labels: tuple[str, str] = ("A", "B")) -> PhaseDifference:
    """Return the reasons for B's longer or shorter run time than A's. ``labels`` are the jobs' names in texts."""
    both = (a, b)
    unknown: dict[str, str] = {}
    folded = [_fold_phases(one.phases, _find_unknown_phases(both, unknown)) for one in both]
    training = [[(span.start, span.end) for span, cause in own if cause is None] for own in folded]
    same = not (a.types and b.types) or a.types == b.types
    times, unsplit = split_work([one.courses for one in both], training, same_devices=same)
    if any(map(_length, training)):
        unknown.update(unsplit)
    parts = [
        _round_to_whole(_sum_by_cause(own), work, _length(spans))
        for own, work, spans in zip(folded, times, training, strict=True)
    ]
    figures = DifferenceFigures(labels, [one.means for one in times], [_counts(own) for own in folded])
    ordered = sorted(
        (
            CausePart(cause=cause, a=parts[0].get(cause, 0), b=parts[1].get(cause, 0), text=figures.format_cause(cause))
            for cause in PhaseCause
            if parts[0].get(cause, 0) or parts[1].get(cause, 0)
        ),
        key=lambda part: -abs(part.difference),
    )
    lengths = [sum(own.values()) for own in parts]
    return PhaseDifference(
        a=a.job.id,
        b=b.job.id,
        a_project=a.job.project,
        b_project=b.job.project,
        a_ms=lengths[0],
        b_ms=lengths[1],
        difference_ms=lengths[1] - lengths[0],
        labels=labels,
        sentence=format_sentence(ordered, lengths, labels),
        parts=ordered,
        unknown=unknown,
    )


def _find_unknown_phases(both: Sequence[MeasuredRun], unknown: dict[str, str]) -> frozenset[str]:
    """Return the phases that one of the jobs does not separate, and mark their causes as unknown."""
    found: dict[str, str] = {}
    for one in both:
        for name, reason in one.phases.unknown.items():
            found.setdefault(name, f"{one.job.id}: {reason}")
    if Phase.TRAINING in found:
        for phase in (Phase.START, Phase.FIRST_STEP, Phase.CHECKPOINT, Phase.END):
            found.setdefault(phase.value, found[Phase.TRAINING])
    if Phase.QUEUED in found:
        found.setdefault(Phase.PREPARE.value, found[Phase.QUEUED])
    for name, reason in found.items():
        if Phase(name) is not Phase.TRAINING:
            unknown[_OF_PHASE[Phase(name)].value] = reason
    return frozenset(found)


def _fold_phases(phases: JobPhases, missing: frozenset[str]) -> list[tuple[PhaseSpan, PhaseCause | None]]:
    """Return the spans with their causes, None for training; phases in ``missing`` become part of others."""
    found: list[tuple[PhaseSpan, PhaseCause | None]] = []
    for span in phases.spans:
        if Phase.QUEUED in missing and span.phase in _BEFORE:
            continue  # the submission of one of the jobs is unknown
        found.append((span, _cause(span, missing)))
    return found


def _cause(span: PhaseSpan, missing: frozenset[str]) -> PhaseCause | None:
    phase = span.phase
    if phase is Phase.REPEAT and phase in missing:
        return None
    if phase in {Phase.RESTART, Phase.REPEAT} or (span.attempt and phase in _AGAIN):
        return PhaseCause.RESTART
    if Phase.TRAINING in missing and phase not in _BEFORE:
        return PhaseCause.UNATTRIBUTED
    if phase in {Phase.START, Phase.END} and phase in missing:
        return PhaseCause.UNATTRIBUTED
    if phase is Phase.PREPARE and phase in missing:
        return PhaseCause.QUEUE
    if phase is Phase.TRAINING or (phase in {Phase.FIRST_STEP, Phase.CHECKPOINT} and phase in missing):
        return None
    return _OF_PHASE[phase]


def _sum_by_cause(folded: Sequence[tuple[PhaseSpan, PhaseCause | None]]) -> dict[PhaseCause, int]:
    found: dict[PhaseCause, int] = {}
    for span, cause in folded:
        if cause is not None:
            found[cause] = found.get(cause, 0) + span.length
    return found


def _length(spans: Sequence[Interval]) -> int:
    return sum(end - start for start, end in spans)


def _round_to_whole(of_phases: Mapping[PhaseCause, int], work: WorkTime, training_ms: int) -> dict[PhaseCause, int]:
    """Return milliseconds by cause; the parts of the training are rounded so that they sum to its length."""
    found = dict(of_phases)
    exact = before = 0.0
    rounded = 0
    for cause, length in work.parts.items():
        exact += length
        rounded = round(exact)
        found[cause] = found.get(cause, 0) + rounded - round(before)
        before = exact
    found[PhaseCause.UNATTRIBUTED] = found.get(PhaseCause.UNATTRIBUTED, 0) + training_ms - rounded
    return found


def _counts(folded: Sequence[tuple[PhaseSpan, PhaseCause | None]]) -> dict[PhaseCause, int]:
    """Return the numbers of checkpoints and restarts."""
    spans = [span for span, _ in folded]
    return {
        PhaseCause.CHECKPOINT: sum(span.phase is Phase.CHECKPOINT for span in spans),
        PhaseCause.RESTART: max((span.attempt for span in spans), default=0),
    }
