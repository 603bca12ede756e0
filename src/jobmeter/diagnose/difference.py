"""Explains why one job took longer than another: by cause, in parts that sum to the whole difference."""

from collections.abc import Iterator, Mapping, Sequence

from jobmeter.access.principal import Scope
from jobmeter.diagnose.wording import amount_of, minutes, title
from jobmeter.diagnose.work_time import CLOCK, FIGURES, LINKS, METRICS, SIGNS, WorkTime, split_work
from jobmeter.model.phase import Cause, CausePart, Difference, JobPhases, Phase, PhaseSpan
from jobmeter.query.execute import Executor
from jobmeter.query.phases import WORK, WRITES, Interval, MeasuredRun, RunQuestion
from jobmeter.query.request import JobRef

_OF_PHASE: Mapping[Phase, Cause] = {
    Phase.QUEUED: Cause.QUEUE,
    Phase.PREPARE: Cause.PREPARE,
    Phase.START: Cause.START,
    Phase.FIRST_STEP: Cause.FIRST_STEP,
    Phase.CHECKPOINT: Cause.CHECKPOINT,
    Phase.RESTART: Cause.RESTART,
    Phase.END: Cause.END,
    Phase.UNATTRIBUTED: Cause.UNATTRIBUTED,
}
_BEFORE = frozenset({Phase.QUEUED, Phase.PREPARE})
_AGAIN = frozenset({Phase.START, Phase.FIRST_STEP})
TITLES: Mapping[Cause, str] = {
    Cause.QUEUE: "queue",
    Cause.PREPARE: "image pull or prolog",
    Cause.START: "start",
    Cause.FIRST_STEP: "first step",
    Cause.INPUT: "input",
    Cause.COMMUNICATION: "communication",
    Cause.COMPUTE: "compute",
    Cause.CLOCK: "lower clock",
    Cause.CHECKPOINT: "checkpoints",
    Cause.RESTART: "restarts",
    Cause.END: "end",
    Cause.UNATTRIBUTED: "unattributed",
}
_SIGN_TEXTS: Mapping[str, str] = {
    "pressure.io": "processes waited for storage",
    "pressure.cpu": "processes waited for a CPU",
    "cpu.utilization": "the CPU was in use",
}
_MOST, _SMALL, _SAME = 4, 0.05, 0.01
"""Parts in a sentence; the share of the difference below which one is left out; jobs that differ by less are alike."""
_LEAST_MS = 1_000


def differences(executor: Executor, refs: Sequence[JobRef], scope: Scope) -> list[Difference]:
    """Return for each job but the first why it took longer or less long than the first.

    Raises as ``Executor.run`` does.
    """
    metrics = tuple(dict.fromkeys((*METRICS, *WRITES)))
    first, *others = (executor.run(RunQuestion(ref, metrics), scope) for ref in refs)
    return [explain_difference(first, other) for other in others]


def explain_difference(a: MeasuredRun, b: MeasuredRun) -> Difference:
    """Return why B took longer or less long than A."""
    both = (a, b)
    unknown: dict[str, str] = {}
    folded = [_folded(one.phases, _unknown_phases(both, unknown)) for one in both]
    training = [[(span.start, span.end) for span, cause in own if cause is None] for own in folded]
    same = not (a.types and b.types) or a.types == b.types
    times, unsplit = split_work([one.courses for one in both], training, same_devices=same)
    if any(map(_length, training)):
        unknown.update(unsplit)
    parts = [
        _whole(_of_phases(own), work, _length(spans)) for own, work, spans in zip(folded, times, training, strict=True)
    ]
    counts = [_counts(own) for own in folded]
    ordered = sorted(
        (
            CausePart(
                cause=cause,
                a=parts[0].get(cause, 0),
                b=parts[1].get(cause, 0),
                text=_text(cause, [one.means for one in times], counts),
            )
            for cause in Cause
            if parts[0].get(cause, 0) or parts[1].get(cause, 0)
        ),
        key=lambda part: -abs(part.difference),
    )
    lengths = [sum(own.values()) for own in parts]
    return Difference(
        a=a.job.id,
        b=b.job.id,
        a_project=a.job.project,
        b_project=b.job.project,
        a_ms=lengths[0],
        b_ms=lengths[1],
        difference_ms=lengths[1] - lengths[0],
        sentence=_sentence(ordered, lengths),
        parts=ordered,
        unknown=unknown,
    )


def _unknown_phases(both: Sequence[MeasuredRun], unknown: dict[str, str]) -> frozenset[str]:
    """Return the phases that one of both does not have apart, and name their causes as unknown."""
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


def _folded(phases: JobPhases, missing: frozenset[str]) -> list[tuple[PhaseSpan, Cause | None]]:
    """Return the spans with their causes, None for training; phases that are ``missing`` are part of others."""
    found: list[tuple[PhaseSpan, Cause | None]] = []
    for span in phases.spans:
        if Phase.QUEUED in missing and span.phase in _BEFORE:
            continue  # one of both is not known from its submission on
        found.append((span, _cause(span, missing)))
    return found


def _cause(span: PhaseSpan, missing: frozenset[str]) -> Cause | None:
    phase = span.phase
    if phase is Phase.RESTART or (span.attempt and phase in _AGAIN):
        return Cause.RESTART
    if Phase.TRAINING in missing and phase not in _BEFORE:
        return Cause.UNATTRIBUTED
    if phase in {Phase.START, Phase.END} and phase in missing:
        return Cause.UNATTRIBUTED
    if phase is Phase.PREPARE and phase in missing:
        return Cause.QUEUE
    if phase is Phase.TRAINING or (phase in {Phase.FIRST_STEP, Phase.CHECKPOINT} and phase in missing):
        return None
    return _OF_PHASE[phase]


def _of_phases(folded: Sequence[tuple[PhaseSpan, Cause | None]]) -> dict[Cause, int]:
    found: dict[Cause, int] = {}
    for span, cause in folded:
        if cause is not None:
            found[cause] = found.get(cause, 0) + span.length
    return found


def _length(spans: Sequence[Interval]) -> int:
    return sum(end - start for start, end in spans)


def _whole(of_phases: Mapping[Cause, int], work: WorkTime, training_ms: int) -> dict[Cause, int]:
    """Return milliseconds by cause; the parts of the training are rounded so that they sum to its length."""
    found = dict(of_phases)
    exact = before = 0.0
    rounded = 0
    for cause, length in work.parts.items():
        exact += length
        rounded = round(exact)
        found[cause] = found.get(cause, 0) + rounded - round(before)
        before = exact
    found[Cause.UNATTRIBUTED] = found.get(Cause.UNATTRIBUTED, 0) + training_ms - rounded
    return found


def _counts(folded: Sequence[tuple[PhaseSpan, Cause | None]]) -> dict[Cause, int]:
    """Return how many checkpoints and restarts there were."""
    spans = [span for span, _ in folded]
    return {
        Cause.CHECKPOINT: sum(span.phase is Phase.CHECKPOINT for span in spans),
        Cause.RESTART: max((span.attempt for span in spans), default=0),
    }


def _text(cause: Cause, means: Sequence[Mapping[str, float]], counts: Sequence[Mapping[Cause, int]]) -> str:
    """Return the figures behind a part."""
    if cause in {Cause.CHECKPOINT, Cause.RESTART}:
        return f"{counts[0][cause]} in A, {counts[1][cause]} in B"
    if cause is Cause.INPUT:
        return _input_text(means)
    if cause is Cause.COMMUNICATION:
        return "; ".join(_beside(name, means) for name in LINKS if _in_both(name, means))
    if cause is Cause.CLOCK:
        names = (CLOCK, *FIGURES[1:])
        return "; ".join(_beside(name, means) for name in names if _in_both(name, means))
    if cause is Cause.COMPUTE:
        names = ("gpu.utilization", "gpu.sm.active", "gpu.tensor.active", FIGURES[0])
        return "; ".join(_beside(name, means) for name in names if _in_both(name, means))
    return ""


def _input_text(means: Sequence[Mapping[str, float]]) -> str:
    work = next((name for name in WORK if _in_both(name, means)), "")
    signs = [name for name in SIGNS if _in_both(name, means)]
    if not work or not signs:
        return ""
    sign = max(signs, key=lambda name: means[1][name] - means[0][name])
    return f"{_beside(work, means)}; {_SIGN_TEXTS[sign]} {_figures(sign, means)} of the time"


def _in_both(name: str, means: Sequence[Mapping[str, float]]) -> bool:
    return all(name in own for own in means)


def _beside(name: str, means: Sequence[Mapping[str, float]]) -> str:
    return f"{title(name)} {_figures(name, means)}"


def _figures(name: str, means: Sequence[Mapping[str, float]]) -> str:
    return f"{amount_of(name, means[0][name])} in A, {amount_of(name, means[1][name])} in B"


def _sentence(parts: Sequence[CausePart], lengths: Sequence[int]) -> str:
    """Return the whole difference and its largest parts as a sentence."""
    whole = lengths[1] - lengths[0]
    if abs(whole) < max(_SAME * max(lengths), _LEAST_MS):
        text = f"B took as long as A ({minutes(lengths[1])})"
        least = max(_SAME * max(lengths), _LEAST_MS)
        large = [part for part in parts if abs(part.difference) >= least][:_MOST]
        return f"{text}: {', '.join(_phrase(part) for part in large)}" if large else text
    verb = f"{minutes(abs(whole))} {'longer' if whole > 0 else 'less'} than A"
    large = [part for part in parts if abs(part.difference) >= max(_SMALL * abs(whole), _LEAST_MS)][:_MOST]
    return f"B took {verb}: {', '.join(_phrases(large, whole))}"


def _phrases(parts: Sequence[CausePart], whole: int) -> Iterator[str]:
    """Yield the parts that go with the difference, then those against it."""
    along = [part for part in parts if (part.difference > 0) == (whole > 0)]
    for at, part in enumerate(along):
        text = f"{minutes(abs(part.difference))}{' of it' if at == 0 else ''} {TITLES[part.cause]}"
        yield f"{text} ({part.text})" if at == 0 and part.text else text
    yield from (_phrase(part) for part in parts if part not in along)


def _phrase(part: CausePart) -> str:
    return f"{minutes(abs(part.difference))} {'more' if part.difference > 0 else 'less'} {TITLES[part.cause]}"
