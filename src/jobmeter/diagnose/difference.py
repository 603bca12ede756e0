"""Explains why one job took longer than another: by cause, in parts that sum to the whole difference, and in words."""

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from jobmeter.access.principal import Scope
from jobmeter.diagnose.wording import amount_of, minutes, title
from jobmeter.diagnose.work_time import CLOCK, FIGURES, LINKS, METRICS, SIGNS, WorkTime, split_work
from jobmeter.model.phase import CausePart, JobPhases, Phase, PhaseCause, PhaseDifference, PhaseSpan
from jobmeter.query.course import Interval
from jobmeter.query.execute import Executor
from jobmeter.query.idle import WORK
from jobmeter.query.phases import WRITES, MeasuredRun, RunQuestion
from jobmeter.query.request import JobRef

_SIGN_TEXTS: Mapping[str, str] = {
    "pressure.io": "processes waited for storage",
    "pressure.cpu": "processes waited for a CPU",
    "cpu.utilization": "CPU in use",
}
_METRICS: Mapping[PhaseCause, tuple[str, ...]] = {
    PhaseCause.COMMUNICATION: ("gpu.sm.active", "npu.sm.active", *LINKS),
    PhaseCause.CLOCK: (CLOCK, *FIGURES[1:]),
    PhaseCause.COMPUTE: ("gpu.utilization", "gpu.sm.active", "gpu.tensor.active", FIGURES[0]),
}
_COUNTED = frozenset({PhaseCause.CHECKPOINT, PhaseCause.RESTART})
_MOST, _SMALL, _SAME = 4, 0.05, 0.01
"""Parts in a sentence; the share of the difference below which one is left out; jobs that differ by less are alike."""
_LEAST_MS = 1_000


class DifferenceFigures(msgspec.Struct, frozen=True):
    """The figures of two jobs: means of their metrics while they trained, and how many checkpoints and restarts."""

    labels: tuple[str, str]
    means: Sequence[Mapping[str, float]]
    counts: Sequence[Mapping[PhaseCause, int]]

    def text(self, cause: PhaseCause) -> str:
        """Return the figures behind the part of a cause; empty without figures."""
        if cause in _COUNTED:
            return self._compare_figures("number", *(str(own[cause]) for own in self.counts))
        if cause is not PhaseCause.INPUT:
            return "; ".join(self._compare_mean(name) for name in _METRICS.get(cause, ()) if self._has(name))
        signs = [name for name in SIGNS if self._has(name)]
        texts = [self._compare_mean(name) for name in WORK if self._has(name)][:1]
        if signs:
            most = max(signs, key=lambda name: self.means[1][name] - self.means[0][name])
            texts.append(self._compare_mean(most, _SIGN_TEXTS[most]))
        return "; ".join(texts)

    def _has(self, name: str) -> bool:
        return all(name in own for own in self.means)

    def _compare_mean(self, name: str, text: str = "") -> str:
        return self._compare_figures(text or title(name), *(amount_of(name, own[name]) for own in self.means))

    def _compare_figures(self, text: str, *figures: str) -> str:
        both = (f"{figure} in {label}" for figure, label in zip(figures, self.labels, strict=True))
        return f"{text}: {', '.join(both)}"


def sentence(parts: Sequence[CausePart], lengths: Sequence[int], labels: tuple[str, str]) -> str:
    """Return the whole difference and its largest parts, ``parts`` sorted by size, as a sentence."""
    a, b = labels
    whole = lengths[1] - lengths[0]
    same = abs(whole) < max(_SAME * max(lengths), _LEAST_MS)
    least = max(_SAME * max(lengths) if same else _SMALL * abs(whole), _LEAST_MS)
    large = [part for part in parts if abs(part.difference) >= least][:_MOST]
    if same:
        head, texts = f"{b} took as long as {a} ({minutes(lengths[1])})", map(_phrase, large)
    else:
        head = f"{b} took {minutes(abs(whole))} {'longer' if whole > 0 else 'less'} than {a}"
        texts = map(str, _phrases(large, whole))
    joined = ", ".join(texts)
    return f"{head}: {joined}" if joined else head


def _phrases(parts: Sequence[CausePart], whole: int) -> Iterator[str]:
    """Yield the parts in the direction of the difference, then the opposite ones."""
    along = [part for part in parts if (part.difference > 0) == (whole > 0)]
    for at, part in enumerate(along):
        text = f"{minutes(abs(part.difference))}{'' if at else ' of it'} {part.cause.label}"
        yield f"{text} ({part.text})" if part.text and not at else text
    yield from (_phrase(part) for part in parts if part not in along)


def _phrase(part: CausePart) -> str:
    return f"{minutes(abs(part.difference))} {'more' if part.difference > 0 else 'less'} {part.cause.label}"


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


def differences(executor: Executor, refs: Sequence[JobRef], scope: Scope) -> list[PhaseDifference]:
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
            CausePart(cause=cause, a=parts[0].get(cause, 0), b=parts[1].get(cause, 0), text=figures.text(cause))
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
        sentence=sentence(ordered, lengths, labels),
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
            continue  # one of both is not known from its submission on
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
