"""``jobmeter catalog``: the metrics in the catalogue of this installation. Needs no server."""

from typing import Any

import click

from jobmeter.cli.options import define_verb
from jobmeter.cli.output import build_console, print_json, show_listing
from jobmeter.errors import NotFoundError
from jobmeter.model import catalog
from jobmeter.model.nearest import did_you_mean


@define_verb("jobmeter catalog", "jobmeter catalog --metric gpu.utilization")
@click.option("--metric", multiple=True, metavar="NAME", help="Only this metric, with every field.")
@click.option("--json", "as_json", is_flag=True, help="An array of objects.")
def command(metric: tuple[str, ...], as_json: bool) -> None:
    """List every metric: name, title, unit, kind, scope, and its name in each dialect."""
    chosen = [_find_metric(name) for name in metric] or list(catalog.METRICS)
    if as_json:
        print_json([make_entry(one) for one in chosen])
        return
    out = build_console()
    if metric:
        for one in chosen:
            out.print(_page(one), markup=False)
        return
    rows = [(one.name, one.title, one.unit, one.kind, one.scope, _vendors(one)) for one in chosen]
    columns = ("metric", "title", "unit", "kind", "scope", "in other APIs")
    show_listing(out, columns, rows, spare=("kind", "title"), folded="in other APIs")
    out.print(
        "For all fields of a metric: jobmeter catalog --metric NAME. Programs may report any name that begins with app."
    )


def make_entry(metric: catalog.Metric) -> dict[str, Any]:
    """Return the catalogue entry of a metric as JSON."""
    return {
        "name": metric.name,
        "title": metric.title,
        "group": metric.group,
        "format": metric.format,
        "unit": metric.unit,
        "read_unit": metric.answer_unit,
        "kind": metric.kind,
        "scope": metric.scope,
        "over": metric.over,
        "on_node": metric.on_node or metric.over,
        "parts": metric.parts,
        "rate_of": metric.rate_of,
        "ratio": list(metric.ratio) if metric.ratio else None,
        "rate_but": [list(label) for label in metric.rate_but],
        "difference": list(metric.difference) if metric.difference else None,
        "minimum": metric.minimum,
        "maximum": metric.maximum,
        "text": metric.text,
        "names": dict(metric.names),
    }


def _find_metric(name: str) -> catalog.Metric:
    found = catalog.find(name)
    if found is None:
        hint = did_you_mean(name, catalog.CATALOG) or "; see `jobmeter catalog`"
        raise NotFoundError(f"unknown metric {name!r}{hint}", "metric", name)
    return found


def _vendors(metric: catalog.Metric) -> str:
    return ", ".join(f"{name} ({dialect})" for dialect, name in sorted(metric.names.items()))


def _page(metric: catalog.Metric) -> str:
    facts = {
        "title": metric.title,
        "group": metric.group.heading,
        "unit": metric.unit or "none",
        "answered in": metric.answer_unit or "none",
        "shown as": metric.format,
        "kind": metric.kind,
        "scope": metric.scope,
        "joined by": f"{metric.over} over replicas and devices, {metric.parts} over parts",
        "on a node": metric.on_node or "",
        "rate of": metric.rate_of,
        "derived as": " / ".join(metric.ratio or ()) or " - ".join(metric.difference or ()),
        "bounds": _bounds(metric),
        **{f"in {dialect}": name for dialect, name in sorted(metric.names.items())},
    }
    lines = [metric.name, f"  {metric.text}"]
    lines += [f"  {name:<12} {value}" for name, value in facts.items() if value]
    return "\n".join(lines)


def _bounds(metric: catalog.Metric) -> str:
    low = "" if metric.minimum is None else f"from {metric.minimum:g}"
    high = "" if metric.maximum is None else f"to {metric.maximum:g}"
    return f"{low} {high}".strip()
