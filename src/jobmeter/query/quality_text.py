"""Describe the quality of a job's data in sentences."""

import math
from collections.abc import Iterator, Sequence

from jobmeter.model.quality import JobQuality, MeasuredStretch, NodeQuality
from jobmeter.model.time import HOUR, MINUTE, SECOND, format_iso

OFF_SECONDS = 1.0
"""Clock error in seconds that is reported; smaller ones are drift."""
_NAMED = 3


def list_sentences(quality: JobQuality) -> list[str]:
    """Return sentences about missing data, dropped data, clocks and late data. Empty if all is well."""
    nodes = quality.nodes or ()
    return [
        *_describe_damaged(quality),
        *_describe_unmeasured(quality),
        *_gaps(quality),
        *_describe_lost(nodes),
        *_clocks(quality),
        *_describe_late(nodes),
    ]


def _describe_damaged(quality: JobQuality) -> Iterator[str]:
    count = len(quality.damaged)
    if count:
        what = "a part" if count == 1 else f"{count} parts"
        yield f"{what} of the store that may have samples of the job cannot be read"


def _describe_unmeasured(quality: JobQuality) -> Iterator[str]:
    names = list(dict.fromkeys(one.replica for one in quality.replicas if not one.samples))
    if names:
        yield f"no samples of {_some(names)}"


def _gaps(quality: JobQuality) -> Iterator[str]:
    if not quality.gaps:
        return
    longest = max(quality.gaps, key=lambda gap: gap.end - gap.start)
    span = f"from {format_iso(longest.start)} to {format_iso(longest.end)}"
    text = f"no samples of {longest.replica or 'the job'} for {_length(longest.end - longest.start)} {span}"
    if not longest.exact:
        text = f"{longest.missing} samples of {longest.replica or 'the job'} are missing {span}"
    if longest.agent_away:
        text += f", while the agent of {longest.node or 'its node'} was away"
    if quality.gap_count > 1:
        measured = [one for one in quality.replicas if one.samples]
        several = sum(one.gaps > 0 for one in measured)
        where = f"{several} of {len(measured)} replicas" if len(measured) > 1 else "its samples"
        covered = math.floor((quality.coverage or 0) * 1000) / 10
        text = f"{quality.gap_count} gaps in {where}, {covered:.1f}% of the time is covered; the longest: {text}"
    yield text


def _describe_lost(nodes: Sequence[NodeQuality]) -> Iterator[str]:
    losing = [node for node in nodes if node.dropped]
    if losing:
        total = sum(sum(node.dropped.values()) for node in losing)
        reasons = sorted({reason for node in losing for reason in node.dropped})
        yield f"{_agents(losing)} dropped {total} samples ({', '.join(reasons)})"
    damaged = [node for node in nodes if node.damaged_bytes]
    if damaged:
        total = sum(node.damaged_bytes for node in damaged)
        yield f"{_agents(damaged)} could not read back {total} bytes of data that waited on disk"


def _clocks(quality: JobQuality) -> Iterator[str]:
    off = [node for node in quality.nodes or () if abs(node.clock_offset or 0.0) > OFF_SECONDS]
    if off:
        worst = max(off, key=lambda node: abs(node.clock_offset or 0.0))
        offset = worst.clock_offset or 0.0
        more = "" if len(off) == 1 else f"; clocks of {len(off)} nodes were stepped"
        side = "ahead of" if offset > 0 else "behind"
        yield f"the clock of {worst.node} was {abs(offset):.1f} s {side} the time of its samples{more}"
    if quality.ahead >= OFF_SECONDS * SECOND:
        yield f"the newest sample is {quality.ahead / SECOND:.1f} s ahead of the server's clock"


def _describe_late(nodes: Sequence[NodeQuality]) -> Iterator[str]:
    late = [(stretch, node) for node in nodes for stretch in node.late]
    if late:
        stretch, node = max(late, key=lambda one: one[0].end - one[0].start)
        more = "" if len(late) == 1 else f", the longest of {len(late)} such times"
        yield f"samples of {node.node} came late: they waited on its disk for {_format_stretch(stretch)}{more}"


def _format_stretch(stretch: MeasuredStretch) -> str:
    return f"{_length(stretch.end - stretch.start)} from {format_iso(stretch.start)} to {format_iso(stretch.end)}"


def _agents(nodes: Sequence[NodeQuality]) -> str:
    return f"the agent of {nodes[0].node}" if len(nodes) == 1 else f"the agents of {len(nodes)} nodes"


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _length(milliseconds: int) -> str:
    for unit, name in ((HOUR, "h"), (MINUTE, "min")):
        if milliseconds >= 2 * unit:
            return f"{milliseconds / unit:.1f} {name}"
    return f"{milliseconds / SECOND:.1f} s"
