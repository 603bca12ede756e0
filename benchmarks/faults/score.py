"""Precision and recall of the diagnosis, rule by rule."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import sqrt

from benchmarks.faults.generated import COMPANIONS, CONSEQUENCES
from jobmeter.model.finding import Finding, FindingRole

_Z = 1.959964
"""Quantile of the normal distribution for an interval of 95 %."""


@dataclass(frozen=True, slots=True)
class Trial:
    """A job: the rule that had to be named ("" for a healthy one), and the findings."""

    name: str
    rule: str
    findings: Sequence[Finding]
    delay: int | None = None
    """Time from when the fault began until its finding opened while the job ran, in ms; None where unknown."""

    @property
    def hit(self) -> bool:
        """The right rule is there, as a root."""
        return any(one.rule == self.rule and one.role is FindingRole.ROOT for one in self.findings)

    @property
    def wrong(self) -> list[str]:
        """The rules that should not be there: neither the right one, nor what goes with it or follows from it."""
        fitting = {self.rule} | COMPANIONS.get(self.rule, frozenset())
        return sorted(
            {one.rule for one in self.findings if one.rule not in fitting and not (self.rule and _follows(one))}
        )


@dataclass(slots=True)
class Score:
    """Jobs in which a rule was found rightly and wrongly, and in which it was missed."""

    right: int = 0
    wrong: int = 0
    missed: int = 0

    @property
    def precision(self) -> float:
        """Share of the findings that are right; 1 without findings."""
        return self.right / (self.right + self.wrong) if self.right + self.wrong else 1.0

    @property
    def recall(self) -> float:
        """Share of the faults that were found; 1 without faults."""
        return self.right / (self.right + self.missed) if self.right + self.missed else 1.0


def scores(trials: Iterable[Trial]) -> dict[str, Score]:
    """By rule, with all of them together under an empty name."""
    found: dict[str, Score] = {}
    whole = Score()
    for trial in trials:
        if trial.rule:
            own = found.setdefault(trial.rule, Score())
            for score in (own, whole):
                score.right += trial.hit
                score.missed += not trial.hit
        for rule in trial.wrong:
            found.setdefault(rule, Score()).wrong += 1
            whole.wrong += 1
    return {**dict(sorted(found.items())), "": whole}


def interval(right: int, total: int) -> tuple[float, float]:
    """Return the 95 % interval of a share of ``total`` > 0 trials, by Wilson's formula.

    https://en.wikipedia.org/wiki/Binomial_proportion_confidence_interval#Wilson_score_interval
    """
    share = right / total
    middle = share + _Z**2 / (2 * total)
    spread = _Z * sqrt(share * (1 - share) / total + _Z**2 / (4 * total**2))
    whole = 1 + _Z**2 / total
    return max(0.0, (middle - spread) / whole), min(1.0, (middle + spread) / whole)


def _follows(one: Finding) -> bool:
    return one.rule in CONSEQUENCES and one.role is not FindingRole.ROOT
