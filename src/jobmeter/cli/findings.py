"""``jobmeter findings``, and findings as text on a terminal."""

from collections.abc import Sequence

import click
from rich.console import Console

from jobmeter.cli import local
from jobmeter.cli.named import build_rule_option
from jobmeter.cli.options import build_choice, build_number_option, define_verb, make_since_option
from jobmeter.cli.output import build_console, escape_cell, format_time, print_hanging, print_json, show_listing
from jobmeter.client.searches import FindingSearch
from jobmeter.model.answers import FindingEntry
from jobmeter.model.finding import Finding, FindingSummary, Severity
from jobmeter.model.job import JobState

STYLES = {Severity.CRITICAL: "bold red", Severity.WARNING: "yellow", Severity.INFO: "cyan"}


def format_headline(one: Finding) -> str:
    """Format the severity and the sentence of a finding, as markup."""
    return f"{format_severity(one)} {escape_cell(get_sentence(one))}"


def format_severity(one: Finding) -> str:
    """Format the severity of a finding in its colour, as markup."""
    return f"[{STYLES[one.severity]}]{one.severity}[/]"


def get_sentence(one: Finding) -> str:
    """Return the sentence of a finding. Servers of earlier releases send only a message."""
    return one.sentence or one.message


def format_origin(one: Finding) -> str:
    """Format the rule and role of a finding, and when it began, as markup."""
    began = f"{'since' if format_time(one.start) < format_time(one.end) else 'at'} {format_time(one.start)} UTC"
    return f"[dim]({escape_cell(one.rule)}, {one.role}, {began})[/]"


def rank_marked_replicas(findings: Sequence[Finding]) -> dict[str, int]:
    """Return the places of the replicas that findings mark: a finding about fewer replicas first, then the worse one.

    A finding about most of a job says little about one of its replicas.
    """
    order = sorted(findings, key=lambda one: len(one.replicas))
    return {name: at for at, name in enumerate(dict.fromkeys(name for one in order for name in one.replicas))}


def has_passed(one: FindingSummary, state: JobState) -> bool:
    """Return True if the job still runs and all its findings are closed."""
    return state is JobState.RUNNING and not one.open


def choose_summary_style(one: FindingSummary, state: JobState) -> str:
    """Return the style of the worst finding of a job in a listing."""
    return "dim" if has_passed(one, state) else STYLES[one.severity]


def format_summary(one: FindingSummary | None, state: JobState) -> str:
    """Format the worst finding of a job for a listing; empty without one. Older servers send only its rule."""
    if one is None:
        return ""
    more = f" (+{one.count - 1})" if one.count > 1 else ""
    passed = "past " if has_passed(one, state) else ""
    return f"{passed}{one.severity}: {one.sentence or ', '.join(one.rules[:1])}{more}"


def list_details(one: Finding) -> list[tuple[str, str]]:
    """List time, further evidence and advice of a finding, each with its label."""
    span = " to ".join(dict.fromkeys((format_time(one.start), format_time(one.end))))
    first = get_sentence(one)
    evidence = ((evidence.kind, evidence.text) for evidence in one.evidence if evidence.text not in first)
    return [("when", f"{span} UTC, confidence {one.confidence:.0%}"), *evidence, ("advice", one.advice)]


def print_finding(out: Console, one: Finding) -> None:
    """Print a finding with its evidence and advice."""
    print_hanging(out, "", format_headline(one), 2, tail=f"[dim]({escape_cell(one.rule)}, {one.role})[/]")
    for name, text in (*list_details(one), ("rule from", one.source)):
        print_hanging(out, f"  {escape_cell(name):<12}", escape_cell(text), 14)
    out.print()


SHOWN, MOST = 50, 1_000
"""Default number of findings in the list, and the largest one."""
_SPARE = ("user", "since", "rule", "state", "name")
_GROUPS = {"Filters": ("findings", "severities", "only_open", "since", "project")}


@define_verb("jobmeter findings --open", "jobmeter findings --severity critical --since 7d", groups=_GROUPS)
@build_rule_option("Only findings of this rule.")
@click.option(
    "--severity", "severities", multiple=True, type=build_choice(Severity), help="Only findings of this severity."
)
@click.option("--open", "only_open", is_flag=True, help="Only open findings of running jobs, the worst first.")
@make_since_option("Only findings reported at most this long ago, such as 30m or 7d.")
@build_number_option("--limit", 1, MOST, SHOWN, "Show at most N findings.")
@click.option("--json", "as_json", is_flag=True, help="An array of objects.")
@local.listing_options
def command(limit: int, only_open: bool, as_json: bool, connection: local.LocalConnection, **options: object) -> None:
    """List the findings of all jobs, the newest first.

    `jobmeter diagnose JOB` shows the evidence of the findings of one job.

    An option given several times matches any of its values.
    """
    given = {"limit": limit, "open": "true" if only_open else None, "project": connection.project, **options}
    search = FindingSearch(**given)  # type: ignore[arg-type]
    api = connection.open()
    page = api.read_all_findings(search)
    if not page.findings:
        local.check_project(api, connection.project)
    if as_json:
        print_json(page.findings)
        return
    columns = ("severity", "job", "name", "state", "user", "since", "finding", "rule")
    narrowed = search != FindingSearch(limit=limit, project=connection.project)
    rows, empty = [_row(one) for one in page.findings], "no finding matches" if narrowed else "no findings yet"
    show_listing(build_console(), columns, rows, spare=_SPARE, folded="finding", empty=empty)
    if page.more:
        build_console().print(f"the first {len(rows)} shown: use --limit for more, or filter with --severity")


def _row(one: FindingEntry) -> tuple[str, ...]:
    state = f"{one.state}, open" if one.open else str(one.state)
    return str(one.severity), one.job, one.name, state, one.user, format_time(one.start), one.sentence, one.rule
