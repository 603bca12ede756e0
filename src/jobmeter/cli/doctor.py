"""``jobmeter doctor``: what is measured on this machine, what is not, and why."""

import os
import sys
from pathlib import Path

import click
from rich.markup import escape

from jobmeter.cli import local
from jobmeter.cli.options import FOLDER, build_key_option, ca_file_option, data_option, define_verb, find_data_folder
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
@click.option("--server", metavar="URL", help="The server (JOBMETER_SERVER; default: the data folder's own).")
@build_key_option("The agent's token (JOBMETER_KEY).")
@data_option
@click.option(
    "--spool", type=FOLDER, metavar="DIR", help="The agent's spool (default: spool/agent in the data folder)."
)
@ca_file_option
@click.option("--kubeconfig", metavar="FILE", help="Configuration file for a Kubernetes API server (KUBECONFIG).")
@click.option("--flink", metavar="URL", help="URL of a Flink job manager (FLINK_REST).")
@click.option("--json", "as_json", is_flag=True, help="The checks as JSON.")
def command(
    *,
    server: str | None,
    key: str | None,
    data: Path | None,
    spool: Path | None,
    ca_file: str | None,
    kubeconfig: str | None,
    flink: str | None,
    as_json: bool,
) -> None:
    """Show what is measured on this machine, and for the rest the reason and the remedy. Exit status 1: a problem.

    Run it as the agent's user with the agent's settings, because rights and keys depend on them.
    """
    questions = Questions(
        environment=os.environ,
        transport=_transport(server, key, data, ca_file),
        spool=spool or find_data_folder(data) / "spool" / "agent",
        kubeconfig=kubeconfig,
        flink=flink,
    )
    checks = examine(Machine(), questions, SystemClock())
    if as_json:
        print_json(checks)
    else:
        _show(checks)
    sys.exit(any(check.status is SourceStatus.PROBLEM for check in checks))


def _transport(server: str | None, key: str | None, data: Path | None, ca_file: str | None) -> Transport | None:
    """Return a transport to the server; None if no server is given and none listens for the data folder."""
    try:
        found = local.connect(server, key, data, start=False, ca_file=ca_file)
    except UnavailableError:
        return None
    return found.with_timeout(10.0)


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
