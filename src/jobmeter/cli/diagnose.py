"""``jobmeter diagnose``: why a job is slow, or why it died."""

import click
import msgspec
from rich.console import Console

from jobmeter.cli import completion, local
from jobmeter.cli.output import cell, console, moment, print_json
from jobmeter.model.finding import Finding, Severity

_STYLES = {Severity.CRITICAL: "bold red", Severity.WARNING: "yellow", Severity.INFO: "cyan"}


@click.command(short_help="Tell why a job is slow, or why it died.")
@click.argument("job", shell_complete=completion.jobs)
@click.option("--json", "as_json", is_flag=True, help="An array of findings.")
@local.connection_options
def command(job: str, as_json: bool, connection: local.Connection) -> None:
    """Tell what the diagnostic rules find in JOB: worst first, with evidence and advice."""
    named = connection.find(job)
    findings = named.api.findings(named.id, named.project)
    if as_json:
        print_json([msgspec.to_builtins(one) for one in findings])
        return
    out = console()
    if not findings:
        out.print("no rule found anything", markup=False)
    for one in findings:
        _print(out, one)


def headline(one: Finding) -> str:
    """A finding in one line, as markup."""
    style = _STYLES[one.severity]
    text = f": {cell(one.evidence[0].text)}" if one.evidence else ""
    whom = f"{cell(one.subject.kind)} {cell(one.subject.name)}"
    return f"[{style}]{one.severity}[/] {cell(one.rule)} ({one.role}, {whom}){text}"


def _print(out: Console, one: Finding) -> None:
    out.print(headline(one))
    span = moment(one.start) if one.start == one.end else f"{moment(one.start)} to {moment(one.end)}"
    out.print(f"  {'when':<12}{span} UTC, confidence {one.confidence:.0%}")
    for evidence in one.evidence[1:]:
        out.print(f"  {cell(evidence.kind):<12}{cell(evidence.text)}")
    out.print(f"  {'advice':<12}{cell(one.advice)}")
    out.print(f"  {'rule from':<12}{cell(one.source)}\n")
