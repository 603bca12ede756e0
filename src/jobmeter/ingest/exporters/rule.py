"""The shape of one row of an exporter's table."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

MEBIBYTE = float(2**20)


class Subject(Enum):
    """What a series is of, and so which of its labels say whose it is."""

    NODE = "node"
    """A machine: ``instance`` (or ``nodename``) names it."""
    POD = "pod"
    """A container of a pod: the pod's labels name job and replica; ``node`` or else ``instance`` the machine."""
    REPORTED_POD = "reported-pod"
    """The same, reported by somebody who is elsewhere: ``instance`` is not the machine."""
    REPORTED_NODE = "reported-node"
    """A machine, reported by somebody who is elsewhere: ``node`` names it."""
    GPU = "gpu"
    """A GPU: ``gpu`` numbers it, ``Hostname`` names its machine, the pod's labels who uses it."""
    FLINK = "flink"
    """A job of Flink: ``job_id`` names it (``job_name`` where it is left out), ``tm_id`` the replica."""


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
