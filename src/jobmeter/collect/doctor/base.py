"""Result of a check of the doctor."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from jobmeter.collect.checks.runner import CheckRunner


class SourceStatus(StrEnum):
    """Status of a source of measurements.

    ``OK``: read. ``LIMITED``: read in part. ``ABSENT``: not read, because the machine has none or this version has no
    collector for it. ``PROBLEM``: broken.
    """

    OK = "ok"
    LIMITED = "limited"
    ABSENT = "absent"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Check:
    """Result of a check: ``area`` is its group, ``text`` the finding, ``advice`` the remedy, if any."""

    area: str
    name: str
    status: SourceStatus
    text: str
    advice: str = ""


def run_checks(checks: Mapping[tuple[str, str], Callable[[], Iterable[Check]]], patience: float) -> list[Check]:
    """Run checks by area and name, each for at most ``patience`` seconds, and return their results in order."""
    runner: CheckRunner[tuple[str, str], Check] = CheckRunner(
        patience,
        lambda key, error: Check(*key, SourceStatus.PROBLEM, f"a check failed: {error}"[:1_000]),
        lambda key, text: Check(*key, SourceStatus.PROBLEM, text),
    )
    return runner.run(checks)
