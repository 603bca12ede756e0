"""Metrics of a job over time: rows, columns, Arrow, pandas, a plot, or a notebook table."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from jobmeter.cli.output import duration, moment
from jobmeter.client.bodies import MetricAnswer, MetricLine
from jobmeter.model.quantity import quantity
from jobmeter.program import frames, html

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class Point(NamedTuple):
    """Value at a time: ``time`` is the start of its step in epoch milliseconds, ``rank`` None if unknown."""

    metric: str
    time: int
    replica: str
    node: str
    device: str
    rank: int | None
    value: float


class Metrics(frames.Table):
    """Answer to ``Job.metrics``. Unmeasured values are absent; ``len`` is the number of values."""

    def __init__(self, answer: MetricAnswer) -> None:
        self.answer = answer

    @property
    def lines(self) -> list[MetricLine]:
        """Lines of the answer: one for each metric and replica, device or job."""
        return self.answer.lines

    def __iter__(self) -> Iterator[Point]:
        for line in self.lines:
            for time, value in line.points:
                yield Point(line.metric, time, line.replica, line.node, line.device, line.rank, value)

    def __len__(self) -> int:
        return sum(len(line.points) for line in self.lines)

    def rows(self) -> list[Point]:
        """Return every value, line by line."""
        return list(self)

    def columns(self) -> frames.Columns:
        """Return the values column by column."""
        parts = list(zip(*self, strict=True)) or [()] * len(Point._fields)
        return {name: list(part) for name, part in zip(Point._fields, parts, strict=True)}

    def plot(self, axes: "Axes | None" = None) -> "Axes":
        """Plot every line into ``axes`` or new ones. Raises ConfigurationError without matplotlib."""
        figures = frames.library("matplotlib.pyplot")
        moments = frames.library("numpy")
        shown: Axes = figures.subplots(figsize=(9, 3))[1] if axes is None else axes
        for line in self.lines:
            times = moments.array([time for time, _ in line.points], dtype="datetime64[ms]")
            shown.plot(times, [value for _, value in line.points], label=f"{line.metric} {line.title}")
        units = {line.unit for line in self.lines}
        shown.set_ylabel(", ".join(sorted(units)))
        shown.set_xlabel("UTC")
        shown.set_title(self.answer.job)
        if 1 < len(self.lines) <= _NAMED:
            shown.legend()
        return shown

    def __repr__(self) -> str:
        metrics = ", ".join(dict.fromkeys(line.metric for line in self.lines)) or "no values"
        return f"<Metrics of {self.answer.job}: {metrics}; {len(self.lines)} lines, {len(self)} values>"

    def _repr_html_(self) -> str:
        answer = self.answer
        span = f"{moment(answer.start)} to {moment(answer.end)} UTC, step {duration(answer.step)}"
        rows = [_row(line, answer) for line in self.lines[:_SHOWN]]
        more = f"<p>and {len(self.lines) - _SHOWN} lines more</p>" if len(self.lines) > _SHOWN else ""
        shown = html.table(("metric", "line", "mean", "min", "max", "last", "over time"), rows)
        return f"<p><b>{html.text(answer.job)}</b>, {html.text(span)}</p>{shown}{more}"


_NAMED = 10
"""Largest number of lines for which a plot gets a legend."""
_SHOWN = 64


def _row(line: MetricLine, answer: MetricAnswer) -> list[str]:
    values = [value for _, value in line.points]
    figures = (sum(values) / len(values), min(values), max(values), values[-1])
    cells = [html.text(quantity(figure, line.unit)) for figure in figures]
    drawn = html.curve(line.points, answer.start, answer.end)
    return [html.text(line.metric), html.text(line.title), *cells, drawn]
