"""``jobmeter doctor``: what is measured on this machine, what is not, and why."""

import os
import sys
from contextlib import suppress
from pathlib import Path

import click
from rich.markup import escape

from jobmeter.cli import local
from jobmeter.cli.options import FOLDER, define_verb, find_data_folder
from jobmeter.cli.output import build_console, format_count, print_json
from jobmeter.cli.terminal import make_printable
from jobmeter.client.transport import Transport
from jobmeter.collect.doctor.base import Check, SourceStatus
from jobmeter.collect.doctor.examine import Questions, examine
from jobmeter.collect.machine import Machine
from jobmeter.errors import UnavailableError
from jobmeter.model.time import SystemClock

_STYLES = {
    SourceStatus.OK: "green",
    SourceStatus.LIMITED: "yellow",
    SourceStatus.ABSENT: "dim",
    SourceStatus.PROBLEM: "bold red",
}


@define_verb("jobmeter doctor", "jobmeter doctor --server https://meter.example --key TOKEN")
@local.server_options
@click.option(
    "--spool", type=FOLDER, metavar="DIR", help="The agent's spool (default: spool/agent in the data folder)."
)
@click.option("--kubeconfig", metavar="FILE", help="Configuration file for a Kubernetes API server (KUBECONFIG).")
@click.option("--flink", metavar="URL", help="URL of a Flink job manager (FLINK_REST).")
@click.option("--json", "as_json", is_flag=True, help="The checks as JSON.")
def command(
    *,
    spool: Path | None,
    kubeconfig: str | None,
    flink: str | None,
    as_json: bool,
    connection: local.LocalConnection,
) -> None:
    """Show what is measured on this machine, and for everything else why it is not and what to do.

    Run it as the agent's user with the agent's settings: permissions and keys depend on them. The exit status is 1 if
    there is a problem.
    """
    questions = Questions(
        environment=os.environ,
        transport=_transport(connection),
        spool=spool or find_data_folder(connection.data) / "spool" / "agent",
        kubeconfig=kubeconfig,
        flink=flink,
    )
    checks = examine(Machine(), questions, SystemClock())
    if as_json:
        print_json(checks)
    else:
        _show(checks)
    sys.exit(any(check.status is SourceStatus.PROBLEM for check in checks))


def _transport(connection: local.LocalConnection) -> Transport | None:
    """Return a transport to the server; None if no server is given and none listens for the data folder."""
    with suppress(UnavailableError):
        return connection.connect(start=False).with_timeout(10.0)
    return None


def _show(checks: list[Check]) -> None:
    out, area = build_console(), ""
    for check in checks:
        if check.area != area:
            area = check.area
            out.print(f"[bold]{area}[/]")
        status = f"[{_STYLES[check.status]}]{check.status:<8}[/]"
        out.print(f"  {status} {check.name:<13}{escape(make_printable(check.text))}")
        if check.advice and check.status is not SourceStatus.OK:
            out.print(f"{'':24}[dim]→[/] {escape(make_printable(check.advice))}")
    problems = sum(check.status is SourceStatus.PROBLEM for check in checks)
    limited = sum(check.status is SourceStatus.LIMITED for check in checks)
    out.print(f"\n{format_count(problems, 'problem')}, {limited} partial")
