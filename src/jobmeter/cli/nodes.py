"""``jobmeter nodes``: lists the machines that agents run on."""

from collections.abc import Mapping, Sequence
from typing import Any

import click
import msgspec

from jobmeter.cli import completion, local
from jobmeter.cli.options import build_names_option, define_verb
from jobmeter.cli.output import build_console, format_count, format_duration, format_time, print_json, show_listing
from jobmeter.errors import NotFoundError
from jobmeter.model.answers import FaultBody
from jobmeter.model.job import Node
from jobmeter.model.nearest import format_choices
from jobmeter.model.quantity import format_quantity
from jobmeter.model.time import SystemClock

_MOST_MISSING = 3
"""Most unmeasured devices that are named with the reason; also most faults, and jobs that a fault hit."""
_COLUMNS = ("node", "last contact", "cores", "memory", "devices", "resource group", "cluster", "last seen", "kernel")
_SPARE = ("kernel", "first seen", "last seen", "cluster", "resource group", "memory", "cores")


@define_verb("jobmeter nodes", "jobmeter nodes --json")
@build_names_option(
    "--group", "--resource-group", "groups", complete=completion.groups, help_text="Only nodes of this resource group."
)
@click.option("--json", "as_json", is_flag=True, help="An array of objects.")
@local.listing_options
def command(groups: Sequence[str], as_json: bool, connection: local.LocalConnection) -> None:
    """List the nodes that agents run on, with their resources, faults and last contact."""
    api = connection.open()
    found, faulty = api.read_nodes_and_faults(connection.project)
    if not found:
        local.check_project(api, connection.project)
    existing = {node.resource_group for node in found} - {""}
    unknown = next((name for name in groups if name not in existing), None)
    if unknown is not None and existing:
        raise NotFoundError(
            f"no node has the resource group {unknown!r}{format_choices(unknown, existing)}", "resource_group"
        )
    nodes = [node for node in found if not groups or node.resource_group in groups]
    faults = {(one.cluster, one.node): one.faults for one in faulty}
    if as_json:
        print_json([{**msgspec.structs.asdict(node), "faults": faults.get(_place(node), [])} for node in nodes])
        return
    now_ms = SystemClock().now_ms()
    with_faults = sum(_place(node) in faults for node in nodes)
    columns = (*_COLUMNS, "faults") if with_faults else _COLUMNS
    rows = [(*_row(node, now_ms), _faults(faults.get(_place(node), [])))[: len(columns)] for node in nodes]
    out, empty = build_console(), "no node matches" if groups or connection.project else _FIRST_STEP
    show_listing(out, columns, rows, right=("cores", "memory"), spare=_SPARE, folded="faults", empty=empty)
    if with_faults:
        out.print(f"{with_faults} of {format_count(len(nodes), 'node')} with faults")


_FIRST_STEP = "no nodes yet: jobmeter agent --server URL --key KEY on each of them"


def _place(node: Node) -> tuple[str, str]:
    return node.cluster, node.name


def _faults(found: Sequence[FaultBody]) -> str:
    """Format the faults of a node: since when, and which jobs they hit."""
    return "; ".join(map(_fault, found[:_MOST_MISSING])) + ("; ..." if len(found) > _MOST_MISSING else "")


def _fault(one: FaultBody) -> str:
    device = f"{one.device}: " if one.device and one.device not in one.text else ""
    hit = f", hit {', '.join(job.id for job in one.jobs[:_MOST_MISSING])}" if one.jobs else ""
    return f"{device}{one.text}, since {format_time(one.start)} UTC{hit}"


def _row(node: Node, now_ms: int) -> tuple[str, ...]:
    heard = "-" if node.last_seen is None else f"{format_duration(max(now_ms - node.last_seen, 0) // 1000 * 1000)} ago"
    info = node.info
    return (
        node.name,
        heard,
        _text(info, "cores", "cpus", "cpu_count"),
        _bytes(info),
        _devices(info),
        node.resource_group,
        node.cluster,
        format_time(node.last_seen),
        _text(info, "kernel"),
    )


def _text(info: Mapping[str, Any], *names: str) -> str:
    return next((str(info[name]) for name in names if info.get(name) not in {None, ""}), "-")


def _bytes(info: Mapping[str, Any]) -> str:
    amount = info.get("memory") or info.get("memory_total")
    return format_quantity(float(amount), "By") if isinstance(amount, int | float) else "-"


def _devices(info: Mapping[str, Any]) -> str:
    """Format the number of devices; if some are not measured, the number measured, and why others are not."""
    devices = info.get("devices")
    if not isinstance(devices, list):
        return str(len(devices)) if isinstance(devices, dict) else "-" if devices is None else str(devices)
    missing = [one for one in devices if isinstance(one, dict) and one.get("state")]
    if not missing:
        return str(len(devices))
    each = ", ".join(f"{one.get('device', '')} {one['state']}" for one in missing[:_MOST_MISSING])
    more = f", {len(missing) - _MOST_MISSING} more" if len(missing) > _MOST_MISSING else ""
    return f"{len(devices) - len(missing)} of {len(devices)}: {each}{more}"
