"""Precision and recall of the diagnosis for each rule."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import sqrt

from benchmarks.faults.generated import COMPANIONS, CONSEQUENCES
from jobmeter.model.finding import Finding, FindingRole

_Z = 1.959964
"""Quantile of the normal distribution for a 95 % interval."""


@dataclass(frozen=True, slots=True)
class Trial:
    """Diagnosis of one job: the rule that must be named, empty for a healthy job, and the findings."""

    name: str
    rule: str
    findings: Sequence[Finding]
    delay: int | None = None
    """Time in ms from the start of the fault until its finding opened while the job ran; None if not measured."""

    @property
    def hit(self) -> bool:
        """Return True if a finding names the right rule as the root cause."""
        return any(one.rule == self.rule and one.role is FindingRole.ROOT for one in self.findings)

    @property
    def wrong(self) -> list[str]:
        """Return the rules with a wrong finding.

        Right are the rule of the fault, its companions and, in a job with a fault, the rules of ``CONSEQUENCES`` that
        are not named as the root cause.
        """
        fitting = {self.rule} | COMPANIONS.get(self.rule, frozenset())
        return sorted(
            {one.rule for one in self.findings if one.rule not in fitting and not (self.rule and _follows(one))}
        )


@dataclass(slots=True)
class Score:
    """Numbers of jobs in which a rule was named rightly, named wrongly, and missed."""

    right: int = 0
    wrong: int = 0
    missed: int = 0

    @property
    def precision(self) -> float:
        """Return the share of the findings that are right, 1 without findings."""
        return self.right / (self.right + self.wrong) if self.right + self.wrong else 1.0

    @property
    def recall(self) -> float:
        """Return the share of the faults that were found, 1 without faults."""
        return self.right / (self.right + self.missed) if self.right + self.missed else 1.0


def scores(trials: Iterable[Trial]) -> dict[str, Score]:
    """Return the score of each rule, and that of all rules together under an empty name."""
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
