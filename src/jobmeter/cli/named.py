"""Checks of arguments: parts that a job does not have, and implausible times."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import click

from jobmeter.cli import completion
from jobmeter.cli.local import NamedJob
from jobmeter.cli.output import format_time
from jobmeter.errors import NotFoundError
from jobmeter.model.nearest import format_choices
from jobmeter.model.time import SECOND

_Function = TypeVar("_Function", bound=Callable[..., Any])
_SECONDS = range(10**8, 10**10)
"""Numbers that are times from 1973 to 2286 in seconds, and from January to April 1970 in milliseconds."""


def build_metric_option(help_text: str) -> Callable[[_Function], _Function]:
    """Build an option for metric names, repeatable or comma separated."""

    def split(_context: click.Context, _parameter: click.Parameter, texts: Sequence[str]) -> tuple[str, ...]:
        return tuple(name for text in texts for name in text.split(",") if name)

    complete = completion.complete_metrics
    return click.option(
        "--metric", "metrics", multiple=True, metavar="M", callback=split, shell_complete=complete, help=help_text
    )


def build_rule_option(help_text: str) -> Callable[[_Function], _Function]:
    """Build the filter ``--finding`` by diagnostic rules, repeatable."""
    complete = completion.complete_rules
    return click.option("--finding", "findings", multiple=True, metavar="RULE", shell_complete=complete, help=help_text)


def check_milliseconds(options: Mapping[str, object]) -> None:
    """Raise a usage error for a ``start`` or ``end`` that was most likely given in seconds."""
    for option in ("start", "end"):
        text = str(options[option] or "").strip()
        if re.fullmatch(r"[0-9]{9,10}", text) and int(text) in _SECONDS:
            number = int(text)
            raise click.UsageError(
                f"--{option} {text} is {format_time(number)} in milliseconds; "
                f"did you mean {number * SECOND} ({format_time(number * SECOND)})? "
                "For a time in 1970 use ISO 8601."
            )


def check_parts(named: NamedJob, replicas: Sequence[str], devices: Sequence[str] = ()) -> None:
    """Raise NotFoundError, with similar names, for a replica or a device that the job never had."""
    if not replicas and not devices:
        return
    detail = named.api.read_job(named.id, named.project)
    _check("replica", replicas, {replica.name for replica in detail.replicas}, named.id)
    _check("device", devices, {device.device for device in detail.devices}, named.id)


def check_metrics(named: NamedJob, metrics: Sequence[str]) -> None:
    """Raise NotFoundError, with the metrics that the job has, if the job has none of ``metrics``."""
    names = named.api.list_metric_names(named.id, named.project)
    # A limit that a job record states has a value but no samples.
    if not names or set(metrics) & set(names) or named.api.read_latest(named.id, metrics, project=named.project):
        return
    near = format_choices(metrics[0], [name for name in names if not name.startswith("agent.")], "it has")
    raise NotFoundError(f"job {named.id} has no measurements of {', '.join(metrics)}{near}", "metric")


def _check(kind: str, names: Iterable[str], existing: set[str], job: str) -> None:
    for name in names:
        if existing and name not in existing:
            raise NotFoundError(
                f"job {job} has no {kind} {name!r}{format_choices(name, existing, 'it has')}", kind, name
            )
