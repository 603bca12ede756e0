"""Summary at the end of a run, on standard error: a table on a terminal, plain lines elsewhere."""

import sys
from collections.abc import Iterator

import click
from rich.table import Table

from jobmeter.cli.output import Curve, build_console, draw_sparkline, format_duration
from jobmeter.collect.launch.figures import Figure, RunFigures
from jobmeter.collect.launch.plan import LaunchPlan
from jobmeter.collect.launch.result import Result
from jobmeter.model.job import JobState
from jobmeter.model.quantity import format_quantity

_WIDTH = 24
_COLORS = {JobState.SUCCEEDED: "green", JobState.FAILED: "red", JobState.STOPPED: "yellow"}

_NETWORKS = (
    ("network", "network.receive", "network.transmit"),
    # Without its own network namespace the job's share is unknown, so the machine's total is shown.
    ("network (node)", "node.network.receive", "node.network.transmit"),
)
_DEVICES = (("GPU", "gpu", "1"), ("GPU memory", "gpu.memory", "By"), ("GPU power", "gpu.power", "W"))

Row = tuple[str, str, str]


def show(plan: LaunchPlan, result: Result) -> None:
    """Print the summary."""
    lasted = format_duration(result.end_ms - result.start_ms)
    head = f"{plan.job}  {result.state.value} ({_describe_end(result)}) after {lasted}"
    rows = list(_rows(result.figures, bars="utf" in (sys.stderr.encoding or "").lower()))
    rows += [("counted by", result.counted_by, "")] if result.counted_by else []
    rows += [("output", text, "")] if (text := _output(result)) else []
    rows += [("of the job", f"sum over its {plan.replicas} replicas", "")] if plan.replicas > 1 else []
    if not sys.stderr.isatty():
        lines = [f"jobmeter: {head}", *(f"  {name:<15} {text:<47} {bars}".rstrip() for name, text, bars in rows)]
        lines += [f"  {'reason':<15} {result.reason}"] if result.reason else []
        click.echo("\n".join([*lines, f"  jobmeter show {plan.job}"]), err=True)
        return
    table = Table(box=None, show_header=False, pad_edge=False)
    for row in rows:
        table.add_row(*row)
    out = build_console(sys.stderr)
    out.print(head, style=_COLORS.get(result.state, ""), markup=False)
    out.print(table, markup=False)
    if result.reason:
        out.print(f"reason: {result.reason}", markup=False)
    out.print(f"jobmeter show {plan.job}", style="dim", markup=False)


def _describe_end(result: Result) -> str:
    if result.status is not None:
        return f"exit status {result.status}"
    return "detached, it continues" if result.state is JobState.RUNNING else "its exit status is unknown"


def _output(result: Result) -> str:
    if result.lines is None or not result.lines + (result.lines_dropped or 0):
        return ""
    lost = f", {result.lines_dropped:,} lost" if result.lines_dropped else ""
    return f"{result.lines:,} {'line' if result.lines == 1 else 'lines'} stored{lost}"


def _rows(figures: RunFigures, *, bars: bool) -> Iterator[Row]:
    def row(title: str, text: str, *names: str) -> Row:
        points = _add_curves([figures.by_name[name].points for name in names if name in figures.by_name])
        curve = Curve(list(enumerate(points)), 0, len(points), 1)
        return title, text, draw_sparkline(curve, min(_WIDTH, len(points))) if bars else ""

    by_name = dict(figures.by_name)
    if cpu := by_name.get("cpu"):
        used = format_quantity(round(figures.sum_growth("cpu.time"), 2), "s")
        yield row("CPU", f"{_mean_and_peak(cpu, '{core}')}; {used} used", "cpu")
    if memory := by_name.get("memory"):
        yield row("memory", _mean_and_peak(memory, "By"), "memory")
    if figures.memory_peak:
        yield row("memory.peak", f"{format_quantity(figures.memory_peak, 'By')} in one replica", "memory.peak")
    for title, name, unit in _DEVICES:
        if figure := by_name.get(name):
            yield row(title, _mean_and_peak(figure, unit), name)
    for title, text, names in _traffic(figures):
        yield row(title, text, *names)


def _add_curves(curves: list[list[float]]) -> list[float]:
    """Add the curves of bytes read and written; each covers the whole run."""
    count = max(map(len, curves), default=0)
    return [sum(curve[at * len(curve) // count] for curve in curves if curve) for at in range(count)]


def _traffic(figures: RunFigures) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Yield title, text, and the figures to draw as one."""
    for title, received, sent in _NETWORKS:
        if received in figures.by_name:
            yield (
                title,
                f"{_format_total(figures, received)} received, {_format_total(figures, sent)} sent",
                (received, sent),
            )
            break
    if "disk.read" in figures.by_name:
        text = f"{_format_total(figures, 'disk.read')} read, {_format_total(figures, 'disk.write')} written"
        yield "disk", text, ("disk.read", "disk.write")


def _mean_and_peak(figure: Figure, unit: str) -> str:
    return f"mean {format_quantity(figure.mean, unit)}, peak {format_quantity(figure.peak, unit)}"


def _format_total(figures: RunFigures, metric: str) -> str:
    return format_quantity(figures.sum_growth(metric), "By")
