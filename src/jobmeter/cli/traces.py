"""``jobmeter traces``: shows the slowest traces of a job, as trees of their spans."""

from collections.abc import Iterator, Sequence
from typing import Any

import click
from rich.cells import cell_len, set_cell_size
from rich.text import Text

from jobmeter.cli import completion, local
from jobmeter.cli.options import define_verb, make_since_option
from jobmeter.cli.output import build_console, escape_cell, format_count, format_time, print_json
from jobmeter.client import traces
from jobmeter.client.traces import TraceSearch
from jobmeter.model.answers import SpanBody, TraceBody
from jobmeter.model.grouping import group_pairs
from jobmeter.model.span import SpanStatus
from jobmeter.model.time import parse_duration

SHOWN, SPANS, WIDTH = 5, 40, 80
"""Default number of traces, spans of each, and line width."""
_DEEP = 16


_GROUPS = {
    "Filters": ("since", "name", "status", "attributes", "min_duration", "project"),
    "Output": ("sort", "limit", "as_json"),
}


@define_verb("jobmeter traces last", "jobmeter traces train-1 --min-duration 1s --limit 10", groups=_GROUPS)
@click.argument("job", shell_complete=completion.complete_jobs)
@make_since_option("Only spans that began at most this long ago, such as 30m or 7d.")
@click.option("--name", metavar="NAME", help="Only traces with a span of this name.")
@click.option(
    "--status", type=click.Choice([str(one) for one in SpanStatus]), help="Only traces with a span of this status."
)
@click.option(
    "--attribute",
    "attributes",
    metavar="KEY=VALUE",
    multiple=True,
    help="Only traces with a span that has this attribute.",
)
@click.option("--min-duration", metavar="DURATION", help="Only traces that last at least this long, such as 30s.")
@click.option(
    "--sort",
    type=click.Choice(["duration", "start"]),
    default="duration",
    help="Longest or newest first.",
)
@click.option(
    "--limit", type=click.IntRange(1), default=SHOWN, metavar="N", help=f"Show at most N traces (default: {SHOWN})."
)
@click.option("--json", "as_json", is_flag=True, help="An array of objects, without their spans.")
@local.connection_options
def command(
    job: str,
    since: str | None,
    min_duration: str | None,
    limit: int,
    as_json: bool,
    connection: local.LocalConnection,
    **options: Any,  # noqa: ANN401 - further fields of a search
) -> None:
    """Show the slowest traces of JOB, each as a tree of its spans in the order of their starts."""
    named = connection.find(job)
    least_ms = parse_duration(min_duration, "--min-duration") if min_duration else None
    search = TraceSearch(job=named.id, project=named.project, since=since, min_duration=least_ms, **options)
    found = list(traces.iterate_traces(named.api, search, limit))
    if as_json:
        print_json(found)
        return
    out = build_console()
    if not found:
        out.print("no trace matches", markup=False)
    for trace in found:
        width = min(WIDTH, out.width)
        out.print(_head(trace, width))
        for line in iterate_tree(traces.read_spans(named.api, trace.trace, trace.project, SPANS), width):
            out.print(line)
        if trace.spans > SPANS:
            out.print(f"  and {format_count(trace.spans - SPANS, 'further span')}", style="dim")


def _head(trace: TraceBody, width: int) -> Text:
    errors = f", {format_count(trace.errors, 'error')}" if trace.errors else ""
    text = f"{trace.trace}  {format_time(trace.start)}  {format_count(trace.spans, 'span')}{errors}"
    return Text(_fit_line(text, width), style="bold")


def iterate_tree(spans: Sequence[SpanBody], width: int) -> Iterator[Text]:
    """Yield a line per span: its name below its parent's, its service, its duration; errors are marked.

    A span without its parent is shown as a root; a cycle of parents is cut where it closes.
    """
    span_ids = {span.span for span in spans}
    children = group_pairs((span.parent if span.parent in span_ids else "", span) for span in spans)
    waiting = [(0, span) for span in reversed(children.get("", ()))]
    shown: set[str] = set()
    while waiting or len(shown) < len(spans):
        # A cycle without a root is shown from its first span on.
        deep, span = waiting.pop() if waiting else (0, next(one for one in spans if one.span not in shown))
        if span.span in shown:
            continue
        shown.add(span.span)
        yield _line(span, deep, width)
        waiting.extend((deep + 1, child) for child in reversed(children.get(span.span, ())))


def _line(span: SpanBody, deep: int, width: int) -> Text:
    took = _format_duration(span.duration_ns)
    failed = span.status == SpanStatus.ERROR
    tail = f"  {span.replica or span.service}  {took:>8}{' !' if failed else '  '}"
    tail = tail if cell_len(tail) <= width // 2 else f"  {took:>8}{' !' if failed else '  '}"
    name = f"{'  ' * min(deep + 1, _DEEP)}{span.name or span.span}"
    if failed and span.message:
        name = f"{name}: {span.message}"
    line = set_cell_size(_fit_line(name, width - cell_len(tail)), width - cell_len(tail)) + tail
    return Text(line.rstrip(), style="red" if failed else "")


def _fit_line(text: str, width: int) -> str:
    """Fit the text into one line, truncated if too wide, without control characters."""
    plain = Text.from_markup(escape_cell(text)).plain
    return plain if cell_len(plain) <= width else set_cell_size(plain, width - 1).rstrip() + "…"


def _format_duration(length_ns: int) -> str:
    """Format a duration: ``830ns``, ``12.5us``, ``3.1ms``, ``1.25s``, ``1200s``."""
    for unit, size in (("s", 10**9), ("ms", 10**6), ("us", 10**3)):
        if length_ns >= size:
            return f"{length_ns / size:.3g}{unit}" if length_ns < 1000 * size else f"{length_ns / size:.0f}{unit}"
    return f"{length_ns}ns"
