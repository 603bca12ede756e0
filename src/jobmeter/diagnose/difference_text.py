"""The sentence about the difference of two jobs' run times, and the figures behind its parts."""

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from jobmeter.diagnose.wording import find_title, format_length, format_metric_amount
from jobmeter.diagnose.work_time import CLOCK, FIGURES, LINKS, SIGNS
from jobmeter.model.phase import CausePart, PhaseCause
from jobmeter.query.idle import WORK

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
"""Most parts in a sentence; least share of the difference for a part; share of the time below which jobs are equal."""
_LEAST_MS = 1_000


class DifferenceFigures(msgspec.Struct, frozen=True):
    """The figures of two jobs: means of their metrics while they trained, and how many checkpoints and restarts."""

    labels: tuple[str, str]
    means: Sequence[Mapping[str, float]]
    counts: Sequence[Mapping[PhaseCause, int]]

    def format_cause(self, cause: PhaseCause) -> str:
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
        return self._compare_figures(
            text or find_title(name), *(format_metric_amount(name, own[name]) for own in self.means)
        )

    def _compare_figures(self, text: str, *figures: str) -> str:
        both = (f"{figure} in {label}" for figure, label in zip(figures, self.labels, strict=True))
        return f"{text}: {', '.join(both)}"


def format_sentence(parts: Sequence[CausePart], lengths: Sequence[int], labels: tuple[str, str]) -> str:
    """Return the whole difference and its largest parts, ``parts`` sorted by size, as a sentence."""
    a, b = labels
    whole = lengths[1] - lengths[0]
    same = abs(whole) < max(_SAME * max(lengths), _LEAST_MS)
    least = max(_SAME * max(lengths) if same else _SMALL * abs(whole), _LEAST_MS)
    large = [part for part in parts if abs(part.difference) >= least][:_MOST]
    if same:
        head, texts = f"{b} took as long as {a} ({format_length(lengths[1])})", map(_phrase, large)
    else:
        head = f"{b} took {format_length(abs(whole))} {'longer' if whole > 0 else 'less'} than {a}"
        texts = map(str, _phrases(large, whole))
    joined = ", ".join(texts)
    return f"{head}: {joined}" if joined else head


def _phrases(parts: Sequence[CausePart], whole: int) -> Iterator[str]:
    """Yield the parts in the direction of the difference, then the opposite ones."""
    along = [part for part in parts if (part.difference > 0) == (whole > 0)]
    for at, part in enumerate(along):
        text = f"{format_length(abs(part.difference))}{'' if at else ' of it'} {part.cause.label}"
        yield f"{text} ({part.text})" if part.text and not at else text
    yield from (_phrase(part) for part in parts if part not in along)


def _phrase(part: CausePart) -> str:
    return f"{format_length(abs(part.difference))} {'more' if part.difference > 0 else 'less'} {part.cause.label}"
