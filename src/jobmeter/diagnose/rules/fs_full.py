"""A filesystem of a node, or the ephemeral storage of a pod, is full or nearly full."""

import numpy as np

from jobmeter.diagnose.causes import Cause
from jobmeter.diagnose.rule import Case, Findings, Numbers, Rule, Severity, Subject
from jobmeter.diagnose.signal import name_replica
from jobmeter.diagnose.wording import format_amount
from jobmeter.model.time import SECOND

_STORAGE, _WRITE = "storage.ephemeral.utilization", "disk.write"


def find(rule: Rule, case: Case, numbers: Numbers) -> Findings:
    """Find the highest use of each mount point that the job used, and of each replica's ephemeral storage."""
    yield from _mounts(rule, case, numbers)
    for used in case.means.get(_STORAGE, ()):
        full = used.value >= numbers["info"]
        if full.any():
            most = float(used.value.max())
            span = int(used.time[full][0]), int(used.until[full][-1])
            text = f"its ephemeral storage was {format_amount(most, '1')} full"
            evidence = used.cite(text, most, numbers["info"], "1", time=int(used.time[used.value.argmax()]))
            yield rule.report(name_replica(used), _severity(most, numbers), span, [evidence], 0.95)


def _mounts(rule: Rule, case: Case, numbers: Numbers) -> Findings:
    sizes = {(one.node, one.part): one for one in case.nodes.get("node.filesystem.size", ())}
    for free in case.nodes.get("node.filesystem.available", ()):
        size = sizes.get((free.node, free.part))
        if size is None:
            continue
        whole = size.read_at(free.time)
        with np.errstate(invalid="ignore", divide="ignore"):
            used = np.where(whole > 0, 1 - free.value / whole, np.nan)
        full = used >= numbers["info"]
        if full.any() and _concerns(case, free.node, free.part, numbers):
            most = float(np.nanmax(used))
            span = int(free.time[full][0]), int(free.time[full][-1]) + max(free.interval, 1)
            text = f"{free.part or 'a filesystem'} was {format_amount(most, '1')} full"
            evidence = free.cite(text, most, numbers["info"], "1", time=int(free.time[np.nanargmax(used)]))
            subject = Subject("filesystem", f"{free.node}:{free.part}")
            sentence = f"{case.name_subject(subject)} was {format_amount(most, '1')} full"
            yield rule.report(subject, _severity(most, numbers), span, [evidence], 0.95, sentence=sentence)


def _concerns(case: Case, node: str, mount: str, numbers: Numbers) -> bool:
    """False for a filesystem in which the job neither works nor writes: another program fills it.

    Files are open for a short time, and an agent may miss them. So a job that wrote anywhere may have written to this
    filesystem. Without measurements of files and of written bytes, no filesystem is left out.
    """
    used = case.mounts.get(node)
    if used is not None and mount in used.worked | used.written:
        return True
    if used is not None and used.written:
        return False
    writes = [one for one in case.means.get(_WRITE, ()) if one.node in ("", node)]
    if not writes:
        return used is None
    return any(float((one.value * (one.until - one.time)).sum()) / SECOND >= numbers["written"] for one in writes)


def _severity(most: float, numbers: Numbers) -> Severity:
    if most >= numbers["critical"]:
        return Severity.CRITICAL
    return Severity.WARNING if most >= numbers["warning"] else Severity.INFO


fs_full = Cause(
    name="fs_full",
    title="File system full",
    sees="A filesystem of a node that the job uses, or the ephemeral storage of a pod, is full or nearly full.",
    advice="Free space (old checkpoints, caches and logs first), or request more (quota, ephemeral-storage).",
    source="https://github.com/prometheus/node_exporter/blob/master/docs/node-mixin/alerts/alerts.libsonnet",
    raised=(
        "No space left on device",
        "Disk quota exceeded",
        r"\[Errno (?:28|122)\]",
        r"\bos error (?:28|122)\b",
        r"\b(?:ENOSPC|EDQUOT)\b",
    ),
    reasons=(
        "ephemeral.{0,30}(?:limit|exceed)",
        "DiskPressure",
        "low on resource: ephemeral",
        "No space left on device",
    ),
    find_facts=find,
    metrics=(_STORAGE, _WRITE),
    nodes=("node.filesystem.size", "node.filesystem.available"),
    running=True,
)
