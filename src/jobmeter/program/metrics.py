"""Metrics of a job over time: rows, columns, Arrow, pandas, a plot, or a notebook table."""

from collections.abc import Iterator, Sequence
from statistics import fmean, median
from typing import TYPE_CHECKING, Any, NamedTuple

from jobmeter.cli.output import format_count, format_duration, format_time
from jobmeter.client.bodies import MetricAnswer, MetricLine
from jobmeter.errors import InvalidRequestError
from jobmeter.model.catalog import find
from jobmeter.model.grouping import group_pairs
from jobmeter.model.quantity import format_quantity
from jobmeter.program import frames, html

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FEW = 8
"""Most lines of a metric that are printed one by one, and that a plot names in a legend."""
_LEAST = 4
"""Number of lines from which single ones can be unusual."""
_DEVIATIONS, _SHARE = 6.0, 0.1
"""Distance of an unusual line from the median: in deviations of the lines, and as a share of the median."""
_PER_DEVIATION = 1.4826
"""Standard deviations per median absolute deviation, for normal values."""


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
    """Answer to ``JobHandle.metrics``. Unmeasured values are absent; ``len`` is the number of values."""

    def __init__(self, answer: MetricAnswer) -> None:
        self.answer = answer

    @property
    def lines(self) -> list[MetricLine]:
        """Lines of the answer: one for each metric and replica, device or job."""
        return self.answer.lines

    @property
    def unusual(self) -> list[MetricLine]:
        """Lines whose mean is far from the median of the lines of their metric, farthest first."""
        return [line for lines in self._group_by_metric().values() for line in select_unusual(lines)]

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

    def plot(self, axes: "Axes | None" = None) -> Any:  # noqa: ANN401 - axes, or an array of axes, of matplotlib
        """Plot every line, unusual ones in red with their names; the axis has the metric's unit.

        Returns the axes; for several metrics an array of axes, one for each. Raises ConfigurationError without
        matplotlib, and InvalidRequestError for several metrics if ``axes`` are given.
        """
        figures = frames.import_library("matplotlib.pyplot")
        by_metric = self._group_by_metric()
        if axes is not None and len(by_metric) > 1:
            names = ", ".join(by_metric)
            raise InvalidRequestError(f"axes belong to one metric, and there are {names}: name one", "axes")
        if axes is None:
            height = 3 * max(len(by_metric), 1)
            axes = figures.subplots(max(len(by_metric), 1), figsize=(9, height), sharex=True, layout="constrained")[1]
        every = frames.import_library("numpy").atleast_1d(axes)
        for one, (metric, lines) in zip(every, by_metric.items(), strict=False):
            _draw(one, metric, lines)
        every[0].set_title(f"{self.answer.job}: {every[0].get_title()}")
        every[-1].set_xlabel("time (UTC)")
        return axes

    def __repr__(self) -> str:
        answer = self.answer
        head = (
            f"<Metrics of {answer.job}: {format_count(len(self.lines), 'line')}, {format_count(len(self), 'value')}, "
        )
        head += f"{format_time(answer.start)} to {format_time(answer.end)} UTC, step {format_duration(answer.step)}>"
        rows = [["metric", *_HEADS], *([metric, *row] for metric, row, _ in self._summarize())]
        if len(rows) == 1:
            return head
        return "\n".join([head, *frames.align_columns(rows)])

    def _repr_html_(self) -> str:
        answer = self.answer
        span = f"{format_time(answer.start)} to {format_time(answer.end)} UTC, step {format_duration(answer.step)}"
        rows = [
            [html.escape_text(metric), *map(html.escape_text, row), self._draw_curves(metric, lines)]
            for metric, row, lines in self._summarize()
        ]
        shown = html.build_table(("metric", *_HEADS, "over time"), rows)
        return f"<p><b>{html.escape_text(answer.job)}</b>, {html.escape_text(span)}</p>{shown}"

    def _draw_curves(self, metric: str, lines: Sequence[MetricLine]) -> str:
        """Draw lines on the scale of their metric."""
        every = [value for line in self._group_by_metric()[metric] for _, value in line.points]
        scale = min(0.0, *every), max(0.0, *every)
        far = {id(line) for line in select_unusual(lines)}
        marked = {at for at, line in enumerate(lines) if id(line) in far}
        return html.draw_curves([line.points for line in lines], self.answer.start, self.answer.end, scale, marked)

    def _group_by_metric(self) -> dict[str, list[MetricLine]]:
        return group_pairs((line.metric, line) for line in self.lines if line.points)

    def _summarize(self) -> Iterator[tuple[str, list[str], Sequence[MetricLine]]]:
        """Yield a row for each line of a metric with few lines; else one for all, and one for each unusual line."""
        for metric, lines in self._group_by_metric().items():
            if len(lines) <= FEW:
                yield from ((metric, _row(line.title, [line]), [line]) for line in lines)
                continue
            yield metric, _row(f"median of {len(lines)} lines", lines), lines
            order = sorted(lines, key=_mean)
            for what, line in [
                ("lowest: ", order[0]),
                ("highest: ", order[-1]),
                *(("", far) for far in select_unusual(lines)),
            ]:
                if what or (line is not order[0] and line is not order[-1]):
                    yield metric, _row(what + line.title, [line]), [line]


_HEADS = ("line", "mean", "min", "max", "last")


def select_unusual(lines: Sequence[MetricLine]) -> list[MetricLine]:
    """Select the lines of one metric whose mean is far from the median of all means, farthest first.

    Far: more than six deviations of the lines, and a tenth of the median.
    """
    if len(lines) < _LEAST:
        return []
    means = {id(line): _mean(line) for line in lines}
    middle = median(means.values())
    spread = median(abs(mean - middle) for mean in means.values()) * _PER_DEVIATION
    bound = max(_DEVIATIONS * spread, _SHARE * abs(middle))
    far = [line for line in lines if abs(means[id(line)] - middle) > bound]
    return sorted(far, key=lambda line: abs(means[id(line)] - middle), reverse=True)


def _mean(line: MetricLine) -> float:
    return fmean(value for _, value in line.points)


def _row(title: str, lines: Sequence[MetricLine]) -> list[str]:
    """Format the median of the lines' means, their lowest and highest value, and the median of their last values."""
    unit = lines[0].unit
    every = [value for line in lines for _, value in line.points]
    figures = (median(map(_mean, lines)), min(every), max(every), median(line.points[-1][1] for line in lines))
    return [title, *(format_quantity(figure, unit) for figure in figures)]


def _draw(axes: "Axes", metric: str, lines: Sequence[MetricLine]) -> None:
    moments = frames.import_library("numpy")
    ticker = frames.import_library("matplotlib.ticker")
    described, unit = find(metric), lines[0].unit
    far = [id(line) for line in select_unusual(lines)]
    for line in sorted(lines, key=lambda line: id(line) in far):
        times = moments.array([time for time, _ in line.points], dtype="datetime64[ms]")
        style = {"color": "tab:red", "linewidth": 2.0} if id(line) in far else {"color": "0.6"} if far else {}
        # Names that begin with an underscore are not in the legend.
        named = id(line) in far[:FEW] or (not far and 1 < len(lines) <= FEW)
        values = [value for _, value in line.points]
        axes.plot(times, values, label=line.title if named else f"_{line.title}", **style)
    axes.yaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: format_quantity(value, unit)))
    axes.set_title(described.title if described and described.title else metric)
    axes.set_ylabel(metric)
    if far or 1 < len(lines) <= FEW:
        axes.legend()
