"""Writes the reference pages that the program itself can tell: ``make docs``.

A test compares them with what is there.
"""

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path

import click

from jobmeter.cli.main import VERBS, cli
from jobmeter.model import catalog
from jobmeter.model.catalog import Metric

REFERENCE = Path(__file__).parent / "reference"
_MADE = "<!-- Made by `make docs`; the program is the source. -->\n"

_CLI = """\
A failure is one line on standard error and exit status 1; wrong usage is 2. Output is a table on a terminal and the
same as plain text elsewhere; `NO_COLOR` turns colours off. Every listing has `--json`: an array of objects.

Verbs that talk to a server take the one of `--server` (`JOBMETER_SERVER`), else the one that runs on the data folder
(`--data`, `JOBMETER_DATA`, by default `$XDG_DATA_HOME/jobmeter` or `~/.local/share/jobmeter`), else one on port 8400
that takes the folder's key; when there is none they start one on the data folder, which leaves after ten idle minutes.
The key is that of `--key` (`JOBMETER_KEY`), else the data folder's administrator key, which is shown to servers on this
machine only. A server with a certificate of its own is trusted by `SSL_CERT_FILE`.
"""

_CATALOG = """\
One table names every metric; `jobmeter catalog --json` and `GET /api/jobmeter/v1/catalog` print it. A sample is in
`unit`, an answer in `read in`: a counter is sent as it grows and read as its rate. Units are those of UCUM: `By` bytes,
`s` seconds, `W` watts, `J` joules, `Cel` degrees Celsius, `Hz`, `{core}` cores; `1` is a ratio from 0 to 1. `joined by`
says how a job's value is made of its members' (replicas, devices), `bounds` what a sample may be: a value outside of
them is refused, its unit must be wrong.

Names that begin with `app.` (what a program reports) or `external.` (what another system named) are open: gauges
without a unit.
"""


def cli_page() -> str:
    """Every verb with its usage, its meaning and its options."""
    context = click.Context(cli, info_name="jobmeter")
    parts = [
        "# The command line\n",
        _MADE,
        _CLI,
        *(f"- [`jobmeter {verb}`](#jobmeter-{verb}): {text}" for verb, text in VERBS.items()),
        "",
    ]
    for verb in VERBS:
        command = cli.get_command(context, verb)
        if command is not None:
            parts += _verb(command, click.Context(command, context, info_name=verb))
    return "\n".join(parts).rstrip() + "\n"


def _verb(command: click.Command, context: click.Context, level: int = 2) -> list[str]:
    usage = " ".join(command.collect_usage_pieces(context))
    parts = [f"{'#' * level} {context.command_path}\n", f"```\n{context.command_path} {usage}\n```\n"]
    parts += [f"{' '.join(text.split())}\n" for text in inspect.cleandoc(command.help or "").split("\n\n") if text]
    found = (parameter.get_help_record(context) for parameter in command.params)
    records = [[_cell(text) for text in record] for record in found if record is not None and record[1]]
    if records:
        parts += ["| option | what |", "|---|---|"]
        parts += [f"| `{names}` | {text} |" for names, text in records]
        parts.append("")
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            if below is not None:
                parts += _verb(below, click.Context(below, context, info_name=name), level + 1)
    return parts


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


_SCOPES = {
    "replica": "What a replica uses",
    "device": "What a device does",
    "node": "What a node does",
    "agent": "What the agent costs",
    "job": "What a job does",
}


def catalog_page() -> str:
    """Every metric, by scope."""
    parts = [
        "# The catalogue of metrics\n",
        _MADE,
        _CATALOG,
    ]
    for scope, title in _SCOPES.items():
        metrics = [metric for metric in catalog.METRICS if metric.scope == scope]
        if metrics:
            parts += [f"## {title}\n", "| metric | unit | read in | kind | joined by | bounds | what | in other APIs |"]
            parts += ["|---|---|---|---|---|---|---|---|", *(_metric(metric) for metric in metrics), ""]
    return "\n".join(parts).rstrip() + "\n"


def _metric(metric: Metric) -> str:
    derived = f" Derived as {metric.ratio[0]} / {metric.ratio[1]} where it was not measured." if metric.ratio else ""
    derived += f" The rate of {metric.rate_of} where it was not measured." if metric.rate_of else ""
    low = "" if metric.minimum is None else f"from {metric.minimum:g}"
    high = "" if metric.maximum is None else f"to {metric.maximum:g}"
    vendors = ", ".join(f"{dialect}: `{name}`" for dialect, name in sorted(metric.names.items()))
    cells = (
        f"`{metric.name}`",
        metric.unit,
        metric.answer_unit,
        metric.kind,
        metric.over,
        f"{low} {high}".strip(),
        metric.text + derived,
        vendors,
    )
    return f"| {' | '.join(cells)} |"


PAGES: Mapping[str, Callable[[], str]] = {"cli.md": cli_page, "catalog.md": catalog_page}


def main() -> None:
    """Write every page."""
    for name, page in PAGES.items():
        (REFERENCE / name).write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
