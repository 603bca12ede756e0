"""One row of a table that gives what other systems measure in the catalogue's names and units."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from types import MappingProxyType
from typing import Any

MEBIBYTE = float(2**20)
_NONE: Mapping[str, Any] = MappingProxyType({})


class Subject(Enum):
    """What a metric is of, and so which labels say whose it is: see ``place`` of each sender."""

    NODE = auto()
    POD = auto()
    """A container of a pod, or the pod as a whole."""
    REPORTED_POD = auto()
    """The same, reported by somebody who is elsewhere."""
    REPORTED_NODE = auto()
    """A machine, reported by somebody who is elsewhere."""
    GPU = auto()
    FLINK = auto()
    """A job of Flink."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One metric of theirs as one of ours.

    ``metric`` is the catalogue's name, ``factor`` makes its unit. ``keep`` maps their labels to ours: all others are
    left out. ``fixed`` labels are added. A series fits when each label of ``only`` (absent: empty) matches.
    """

    metric: str
    subject: Subject
    factor: float = 1.0
    keep: Mapping[str, str] = field(default_factory=dict)
    fixed: tuple[tuple[str, str], ...] = ()
    only: Mapping[str, re.Pattern[str]] = field(default_factory=dict)

    def fits(self, labels: Mapping[str, str]) -> bool:
        """Whether a series of the metric is meant."""
        return all(pattern.fullmatch(labels.get(name, "")) for name, pattern in self.only.items())


Rules = Mapping[str, tuple[Rule, ...]]
"""By their name of a metric; the first rule that fits a series is its."""
Patterns = Mapping[str, re.Pattern[str]]


def table(subject: Subject, names: Mapping[str, str], keep: Mapping[str, str] = _NONE, only: Patterns = _NONE) -> Rules:
    """One rule for each of their names, which ``names`` maps to the catalogue's."""
    return {theirs: (Rule(metric=ours, subject=subject, keep=keep, only=only),) for theirs, ours in names.items()}


def split(
    subject: Subject, by: str, names: Mapping[str, str], keep: Mapping[str, str] = _NONE, only: Patterns = _NONE
) -> tuple[Rule, ...]:
    """The rules of a metric that is several of the catalogue's: ``names`` maps patterns of the label ``by`` to them."""
    return tuple(
        Rule(metric=ours, subject=subject, keep=keep, only={**only, by: re.compile(pattern)})
        for pattern, ours in names.items()
    )
