"""What a run shows at its end, on standard error: a table on a terminal, plain lines elsewhere."""

import sys
from collections.abc import Iterator

import click
from rich.console import Console
from rich.table import Table

from jobmeter.collect.launch.figures import Figures
from jobmeter.collect.launch.plan import Plan
from jobmeter.collect.launch.result import Result
from jobmeter.model.job import JobState

_BARS = "▁▂▃▄▅▆▇█"
_WIDTH = 24
_COLORS = {JobState.SUCCEEDED: "green", JobState.FAILED: "red", JobState.STOPPED: "yellow"}

_NETWORKS = (
    ("network", "network.receive", "network.transmit"),
    # Without a network of its own the job's part is not known: what the whole machine moved meanwhile.
    ("network (node)", "node.network.receive", "node.network.transmit"),
)

Row = tuple[str, str, str]


def show(plan: Plan, result: Result) -> None:
    """Print the summary."""
    seconds = (result.end_ms - result.start_ms) / 1000
    head = f"{plan.job}  {result.state.value} (exit status {result.status}) after {duration(seconds)}"
    rows = list(_rows(result.figures, bars="utf" in (sys.stderr.encoding or "").lower()))
    rows += [("counted by", result.counted_by, "")] if result.counted_by else []
    rows += [("output", text, "")] if (text := _output(result)) else []
    if not sys.stderr.isatty():
        lines = [f"jobmeter: {head}", *(f"  {name:<15} {text:<44} {bars}".rstrip() for name, text, bars in rows)]
        lines += [f"  {'reason':<15} {result.reason}"] if result.reason else []
        click.echo("\n".join([*lines, f"  jobmeter show {plan.job}"]), err=True)
        return
    table = Table(box=None, show_header=False, pad_edge=False)
    for row in rows:
        table.add_row(*row)
    console = Console(stderr=True, highlight=False)
    console.print(head, style=_COLORS.get(result.state, ""), markup=False)
    console.print(table, markup=False)
    if result.reason:
        console.print(f"reason: {result.reason}", markup=False)
    console.print(f"jobmeter show {plan.job}", style="dim", markup=False)


def sparkline(points: list[float], width: int = _WIDTH) -> str:
    """The points as bars from 0 to the highest, the mean of neighbours where there are more than fit."""
    if not points:
        return ""
    count = min(width, len(points))
    groups = [points[i * len(points) // count : (i + 1) * len(points) // count] for i in range(count)]
    means = [sum(group) / len(group) for group in groups]
    highest = max(means)
    steps = [min(int(mean / highest * len(_BARS)), len(_BARS) - 1) if highest else 0 for mean in means]
    return "".join(_BARS[step] for step in steps)


def duration(seconds: float) -> str:
    """``0.21 s``, ``12.3 s``, ``4 m 05 s``, ``2 h 03 m``."""
    if seconds < 10:
        return f"{seconds:.2f} s"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} m {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} m"


def size(count: float) -> str:
    """Bytes with a decimal prefix, as disks and networks count them."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 999.5:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 99.95 else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def _output(result: Result) -> str:
    if result.lines is None or not result.lines + (result.lines_dropped or 0):
        return ""
    lost = f", {result.lines_dropped:,} lost" if result.lines_dropped else ""
    return f"{result.lines:,} {'line' if result.lines == 1 else 'lines'} kept{lost}"


def _rows(figures: Figures, *, bars: bool) -> Iterator[Row]:
    def row(title: str, text: str, name: str) -> Row:
        return title, text, sparkline(figures.by_name[name].points) if bars and name in figures.by_name else ""

    known = dict(figures.by_name)
    if cpu := known.get("cpu"):
        used = duration(figures.total("cpu.time"))
        yield row("CPU", f"mean {cpu.mean:.2f}, peak {cpu.peak:.2f} cores; {used} used", "cpu")
    memory = known.get("memory")
    peak = max(memory.peak if memory else 0.0, figures.memory_peak)
    if peak:
        yield row("memory", f"peak {size(peak)}" + (f", mean {size(memory.mean)}" if memory else ""), "memory")
    if used_gpu := known.get("gpu"):
        yield row("GPU", f"mean {used_gpu.mean:.0%}, peak {used_gpu.peak:.0%}", "gpu")
    if gpu_memory := known.get("gpu.memory"):
        yield row("GPU memory", f"peak {size(gpu_memory.peak)}", "gpu.memory")
    if power := known.get("gpu.power"):
        yield row("GPU power", f"mean {power.mean:.0f} W, peak {power.peak:.0f} W", "gpu.power")
    for title, received, sent in _NETWORKS:
        if received in known:
            text = f"{size(figures.total(received))} received, {size(figures.total(sent))} sent"
            yield row(title, text, received)
            break
    if "disk.read" in known:
        text = f"{size(figures.total('disk.read'))} read, {size(figures.total('disk.write'))} written"
        yield row("disk", text, "disk.write")
