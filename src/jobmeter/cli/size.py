"""``jobmeter size``: the server that a number of nodes needs. Asks no server."""

from typing import Any

import click

from jobmeter.cli.options import build_interval_option, build_number_option, define_verb, parse_interval
from jobmeter.cli.output import build_console, format_duration, print_hanging, print_json
from jobmeter.model.quantity import format_quantity
from jobmeter.model.retention import Retention
from jobmeter.model.sizing import PlannedFleet, ServerSize, compute_size
from jobmeter.model.time import SECOND

_MOST = 10_000_000
_MOST_DAYS = 36_500


class _Retention(click.ParamType[Retention]):
    name = "days"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Retention:
        if isinstance(value, Retention):
            return value
        parts = str(value).split(",")
        if len(parts) > len(Retention.__struct_fields__) or not all(
            part.isdecimal() and 1 <= int(part) <= _MOST_DAYS for part in parts
        ):
            self.fail(f"{value!r} is not RAW,MINUTES,HOURS in days, such as 15,90,730", param, ctx)
        return Retention(**dict(zip(Retention.__struct_fields__, map(int, parts), strict=False)))


@define_verb("jobmeter size --nodes 1000 --devices 8", "jobmeter size --nodes 50 --interval 30s --retention 30")
@click.option("--nodes", type=click.IntRange(1, _MOST), metavar="N", required=True, help="Number of nodes.")
@build_number_option("--devices", 0, 1_000, 8, "Devices per node.")
@build_number_option("--metrics", 1, 10_000, 40, "Metrics per device and per node.")
@build_interval_option("10s")
@build_number_option("--answers", 0, _MOST, 100, "Queries of current values per second.")
@build_number_option("--processes", 1, 64, 1, "Processes of the server, see `jobmeter serve --processes`.")
@build_number_option("--jobs", 0, _MOST, None, "Running jobs (default: one per node).")
@click.option(
    "--retention",
    type=_Retention(),
    default=Retention(),
    metavar="RAW,MINUTES,HOURS",
    help="Days for which samples, minutes and hours are stored (default: 15,90,730).",
)
@click.option("--json", "as_json", is_flag=True, help="An object; bytes, seconds and cores.")
def command(interval: str, jobs: int | None, as_json: bool, **others: Any) -> None:  # noqa: ANN401 - as PlannedFleet's
    """Compute the processors, memory and disk that a server needs.

    The result derives from measurements on a slow processor: see docs/how-to/capacity.md.
    """
    jobs = others["nodes"] if jobs is None else jobs
    fleet = PlannedFleet(interval_ms=parse_interval(interval, 1_000), jobs=jobs, **others)
    size = compute_size(fleet)
    if as_json:
        print_json(size)
        return
    out = build_console()
    for name, text in _rows(fleet, size).items():
        print_hanging(out, f"{name:<12}", text, 12)


def _rows(fleet: PlannedFleet, size: ServerSize) -> dict[str, str]:
    days = fleet.retention
    tiers = (("samples", days.raw_days, size.raw), ("minutes", days.minute_days, size.minutes))
    parts = [f"{name} of {count} days {_bytes(value)}" for name, count, value in tiers]
    workers = f", {_bytes(size.workers)} for {fleet.processes} worker processes" if size.workers else ""
    every = format_duration(round(size.evaluation_seconds * SECOND))
    return {
        "samples": f"{size.samples_per_second:,.0f} a second of {size.series:,} series",
        "answers": f"{fleet.answers:,.0f} live questions a second take {size.answering_cores:.2f} cores",
        "servers": _servers(size),
        "memory": f"{_bytes(size.memory)}: {_bytes(size.window)} for the samples of the last two hours{workers}",
        "disk": f"{_bytes(size.disk)}: {', '.join(parts)}, hours of {days.hour_days} days {_bytes(size.hours)}",
        "findings": f"each running job is evaluated every {every}",
        "first limit": f"{size.first_limit}, {_format_multiple(size.times)}",
    }


def _servers(size: ServerSize) -> str:
    if size.servers == 1:
        return f"1 with {size.cores} cores: {size.storing_cores * 100:.1f}% of a core stores samples"
    return f"{size.servers} with {size.cores} cores each, and a ClickHouse cluster for their samples"


def _format_multiple(times: float) -> str:
    return f"at {times:.1f} times this size" if times > 1 else "reached at this size"


def _bytes(value: int) -> str:
    return format_quantity(value, "By")
