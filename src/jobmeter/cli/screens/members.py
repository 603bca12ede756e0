"""Rows of a job's ranks and of its devices."""

from collections.abc import Sequence

from jobmeter.cli.findings import rank_marked_replicas
from jobmeter.cli.resource_columns import COLUMNS, Joined, join_values
from jobmeter.cli.screens.draw import (
    FAR_STYLE,
    MEMORY_STYLE,
    USE_STYLE,
    Cell,
    draw_bar,
    draw_spark,
    format_number,
    format_words,
    get_newest,
)
from jobmeter.cli.screens.table import TableRow, build_columns
from jobmeter.cli.screens.watch import Curves, WatchParts
from jobmeter.model.answers import LatestValue
from jobmeter.model.finding import Finding
from jobmeter.model.grouping import group_pairs

_SPARK, _BAR = 20, 10
_RANK_SPARE = (
    *("disk read", "net in", "disk write", "net out", "npu memory", "power", "gpu memory", "memory", "rank"),
    *("cpu", "node", "npu", "gpu"),
)
_OF_DEVICE = (
    ("use", ("gpu.utilization", "npu.utilization")),
    ("memory", ("gpu.memory.utilization", "npu.memory.utilization")),
    ("used", ("gpu.memory.usage", "npu.memory.usage")),
    ("power", ("gpu.power", "npu.power")),
    ("temperature", ("gpu.temperature", "npu.temperature")),
)
_DEVICE_SPARE = ("used", "power", "temperature", "memory", "node")
_NO_RANK = 1 << 30
_USED = tuple(name for name, _ in COLUMNS)
RANK_COLUMNS = build_columns(("replica", "rank", "node", "over time", *_USED), ("rank", *_USED), _RANK_SPARE)
DEVICE_COLUMNS = build_columns(
    ("device", "replica", "node", *(name for name, _ in _OF_DEVICE)), ("used", "power", "temperature"), _DEVICE_SPARE
)


def rank_rows(parts: WatchParts, curves: Curves, findings: Sequence[Finding]) -> list[TableRow]:
    """Build a row for each replica: marked ones with findings, worst first, then the others by rank."""
    named = rank_marked_replicas(findings)
    by_replica = group_pairs((value.replica, value) for value in parts.values)
    order = sorted(
        by_replica, key=lambda name: (named.get(name, len(named)), parts.ranks.get(name, _NO_RANK), len(name), name)
    )
    return [_rank_row(name, by_replica[name], parts.ranks.get(name), curves, is_named=name in named) for name in order]


def _rank_row(name: str, values: list[LatestValue], rank: int | None, curves: Curves, *, is_named: bool) -> TableRow:
    curve = curves.replicas.get(name)
    line = draw_spark(curve, _SPARK, curves.top)
    if is_named:
        line.stylize(FAR_STYLE)
    nodes = {value.node for value in values} - {""}
    cells = [
        format_words(name or "(job)", style=FAR_STYLE if is_named else ""),
        Cell(format_words("" if rank is None else str(rank)).text, rank),
        format_words(", ".join(sorted(nodes))),
        Cell(line, get_newest(curve)),
        *(format_number(join_values(values, metric)) for _, metric in COLUMNS),
    ]
    return TableRow(name, cells)


def build_device_rows(parts: WatchParts, findings: Sequence[Finding]) -> list[TableRow]:
    """Build a row for each device: bars of its use and of its memory, power, temperature. Ordered as the ranks."""
    named = rank_marked_replicas(findings)
    by_device = group_pairs(
        ((value.replica, value.node, value.device), value) for value in parts.values if value.device
    )
    order = sorted(
        by_device,
        key=lambda key: (
            *(named.get(key[0], len(named)), parts.ranks.get(key[0], _NO_RANK)),
            *(len(key[0]), key[0], len(key[2]), key[2]),
        ),
    )
    return [_device_row(key, by_device[key], is_named=key[0] in named) for key in order]


def _device_row(key: tuple[str, str, str], values: list[LatestValue], *, is_named: bool) -> TableRow:
    replica, node, device = key
    found = {name: _join_first_measured(values, metrics) for name, metrics in _OF_DEVICE}
    cells = [
        format_words(device),
        format_words(replica, style=FAR_STYLE if is_named else ""),
        format_words(node),
        draw_bar(found["use"], _BAR, USE_STYLE),
        draw_bar(found["memory"], _BAR, MEMORY_STYLE),
        *(format_number(found[name]) for name in ("used", "power", "temperature")),
    ]
    return TableRow("\0".join(key), cells)


def _join_first_measured(values: list[LatestValue], metrics: tuple[str, ...]) -> Joined:
    return next((found for metric in metrics if (found := join_values(values, metric)).value is not None), Joined(None))
