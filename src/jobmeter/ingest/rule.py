"""Rows of the tables that map the metrics of other systems to the catalogue."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from types import MappingProxyType
from typing import Any

MEBIBYTE = float(2**20)
Bounds = tuple[float, float]
"""Lowest and highest value."""
ANY: Bounds = (-math.inf, math.inf)
NOT_NEGATIVE: Bounds = (0.0, math.inf)
_NONE: Mapping[str, Any] = MappingProxyType({})


class RuleTarget(Enum):
    """The subject of a metric, which decides the labels that name its owner: see ``resolve`` of each sender."""

    NODE = auto()
    POD = auto()
    """A container of a pod, or the pod as a whole."""
    REPORTED_POD = auto()
    """A pod or its container, reported from elsewhere."""
    REPORTED_NODE = auto()
    """A machine, reported from elsewhere."""
    GPU = auto()
    FLINK = auto()
    """A job of Flink."""
    SLURM = auto()
    """The processes of a job of Slurm on one machine."""
    SLURM_GPU = auto()
    """A GPU of a job of Slurm."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TranslationRule:
    """Maps a metric of another system to the catalogue.

    ``metric`` is the catalogue's name, ``factor`` converts to its unit. ``keep`` maps the other system's labels to
    ours: all others are left out. ``fixed`` labels are added. A series fits if each label of ``only`` (absent: empty)
    matches. ``measured``: bounds in the other system's unit; it writes a value outside of them if it has no
    measurement.
    """

    metric: str
    subject: RuleTarget
    factor: float = 1.0
    keep: Mapping[str, str] = field(default_factory=dict)
    fixed: tuple[tuple[str, str], ...] = ()
    only: Mapping[str, re.Pattern[str]] = field(default_factory=dict)
    measured: Bounds = ANY

    def fits(self, labels: Mapping[str, str]) -> bool:
        """Return True if this rule is for a series with these labels."""
        return all(pattern.fullmatch(labels.get(name, "")) for name, pattern in self.only.items())


Rules = Mapping[str, tuple[TranslationRule, ...]]
"""Rules by the other system's metric name; the first rule that fits a series applies."""
Patterns = Mapping[str, re.Pattern[str]]


def make_table(
    subject: RuleTarget,
    names: Mapping[str, str],
    keep: Mapping[str, str] = _NONE,
    only: Patterns = _NONE,
    measured: Bounds = ANY,
) -> Rules:
    """Return a table with one rule for each entry of ``names``: the other system's name and the catalogue's."""
    return {
        theirs: (TranslationRule(metric=ours, subject=subject, keep=keep, only=only, measured=measured),)
        for theirs, ours in names.items()
    }


def split(
    subject: RuleTarget, by: str, names: Mapping[str, str], keep: Mapping[str, str] = _NONE, only: Patterns = _NONE
) -> tuple[TranslationRule, ...]:
    """Return the rules of a metric that becomes several of the catalogue's.

    ``names`` maps patterns of the label ``by`` to the catalogue's names.
    """
    return tuple(
        TranslationRule(metric=ours, subject=subject, keep=keep, only={**only, by: re.compile(pattern)})
        for pattern, ours in names.items()
    )
