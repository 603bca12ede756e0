"""A filesystem of a node is full, or nearly."""

import numpy as np

from jobmeter.diagnose.case import Case
from jobmeter.diagnose.rule import Findings, Rule
from jobmeter.diagnose.thresholds import Numbers
from jobmeter.model.finding import Severity, Subject


def find(rule: Rule, case: Case, numbers: Numbers) -> Findings:
    """The highest use of each mount point while the job was there."""
    sizes = {(one.node, one.part): one for one in case.nodes.get("node.filesystem.size", ())}
    for free in case.nodes.get("node.filesystem.available", ()):
        size = sizes.get((free.node, free.part))
        if size is None:
            continue
        whole = size.at(free.time)
        with np.errstate(invalid="ignore", divide="ignore"):
            used = np.where(whole > 0, 1 - free.value / whole, np.nan)
        full = used >= numbers["info"]
        if full.any():
            most = float(np.nanmax(used))
            span = int(free.time[full][0]), int(free.time[full][-1]) + max(free.interval, 1)
            text = f"{free.part or 'a filesystem'} of {free.node} was {most:.1%} full"
            evidence = free.evidence(text, most, numbers["info"], "1", time=int(free.time[np.nanargmax(used)]))
            subject = Subject("filesystem", f"{free.node}:{free.part}")
            yield rule.finding(subject, _severity(most, numbers), span, [evidence], 0.95)


def _severity(most: float, numbers: Numbers) -> Severity:
    if most >= numbers["critical"]:
        return Severity.CRITICAL
    return Severity.WARNING if most >= numbers["warning"] else Severity.INFO


RULE = Rule(
    name="fs_full",
    sees="A filesystem of a node that the job was on is nearly full.",
    advice="Make room: old checkpoints, caches and logs first.",
    source="https://github.com/prometheus/node_exporter/blob/master/docs/node-mixin/alerts/alerts.libsonnet",
    find=find,
    nodes=("node.filesystem.size", "node.filesystem.available"),
    running=True,
)
