"""Tracks the open findings of a running job: which ones open, stay open and close."""

from collections.abc import Callable, Iterable, Mapping

import msgspec

from jobmeter.diagnose.finding_events import Key
from jobmeter.diagnose.registry import list_rules
from jobmeter.model.finding import Finding, Severity, Subject
from jobmeter.model.job import JobView

MOST_OPEN = 64
"""Open findings of a job, at most; further ones are reported when it has ended."""
_SEVERITIES = tuple(Severity)


class Open(msgspec.Struct, frozen=True):
    """An open finding: when it was reported, when it last held (both epoch ms), and its highest severity."""

    opened: int
    last: int
    severity: Severity = Severity.WARNING


class FindingChange(msgspec.Struct, frozen=True):
    """Changes of one evaluation.

    ``opened`` has findings that opened or got worse. ``closed`` has findings that closed, each with the time of its
    report.
    """

    opened: list[Finding] = msgspec.field(default_factory=list)
    closed: list[tuple[Key, int]] = msgspec.field(default_factory=list)


class OpenFindings:
    """The open findings of one job.

    A finding opens if a rule finds it and it held within ``hold_ms`` of the job's last samples. It closes once it did
    not hold for ``hold_ms``. A critical finding of a rule that ``lasts`` stays open while the job has the device. A
    finding that gets worse is reported again. A finding of level info does not open: people see it at the end of the
    job, or when they ask. It only keeps a finding open that was worse before.
    """

    def __init__(self, already: Mapping[Key, Open] | None = None) -> None:
        self._open = dict(already or {})

    def __len__(self) -> int:
        return len(self._open)

    @property
    def rules(self) -> frozenset[str]:
        """The rules of the open findings."""
        return frozenset(rule for rule, _ in self._open)

    def update(
        self,
        found: Iterable[Finding],
        upto_ms: int,
        now_ms: int,
        hold_ms: float,
        has: Callable[[Subject], bool] = lambda _: False,
    ) -> FindingChange:
        """Update with the findings over samples up to a time. ``has`` tells if the job still has a device or node."""
        change = FindingChange()
        for one in found:
            if upto_ms - one.end >= hold_ms:
                continue
            key = (one.rule, one.subject)
            before = self._open.get(key)
            if before is not None:
                worst = max(before.severity, one.severity, key=_SEVERITIES.index)
                self._open[key] = Open(before.opened, max(before.last, one.end), worst)
                if worst is not before.severity:
                    change.opened.append(one)
            elif one.severity is not Severity.INFO and len(self._open) < MOST_OPEN:
                self._open[key] = Open(now_ms, one.end, one.severity)
                change.opened.append(one)
        lasting = {rule.name for rule in list_rules() if rule.lasts}
        over = [
            (key, one.opened)
            for key, one in self._open.items()
            if upto_ms - one.last >= hold_ms
            and not (key[0] in lasting and one.severity is Severity.CRITICAL and has(key[1]))
        ]
        for key, _ in over:
            del self._open[key]
        change.closed.extend(over)
        return change


def has_subject(view: JobView, subject: Subject) -> bool:
    """True unless the job has left the device or node: all its known stays there are over."""
    node, _, device = subject.name.partition("/")
    devices = [one.end for one in view.allocations if one.node == node and one.device in {device, device.split(":")[0]}]
    replicas = [one.end for one in view.replicas if one.node == node]
    return all(None in ends for ends in (devices, replicas) if ends)
