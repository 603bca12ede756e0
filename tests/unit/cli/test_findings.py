"""Tests of ``jobmeter findings``."""

import json

import pytest

from jobmeter.cli.findings import choose_summary_style, format_summary
from jobmeter.model.finding import FindingSummary, Severity
from jobmeter.model.job import JobState

FOUND = {
    "project": "lab", "job": "train-1", "name": "llama", "user": "lin", "state": "Running", "rule": "xid",
    "severity": "critical", "sentence": "worker-3 (node-7, gpu2): XID 79", "start": 1_790_000_000_000,
    "time": 1_790_000_060_000, "open": True,
}  # fmt: skip


def test_findings_are_listed_with_their_jobs(server, run):
    server.on("/findings", {"findings": [FOUND], "more": True})
    shown = " ".join(run("findings").stdout.split())
    assert "critical train-1" in shown
    assert "XID 79" in shown
    assert "use --limit" in shown
    assert json.loads(run("findings", "--json").stdout) == [FOUND]


@pytest.mark.parametrize(
    ("options", "parameters"),
    [
        (["--open"], "open=true"),
        (["--severity", "critical", "--since", "7d"], "severity=critical&since=7d"),
        (["--finding", "xid", "--project", "lab"], "finding=xid&project=lab"),
    ],
)
def test_options_narrow_the_question(server, run, options, parameters):
    server.on("/findings", {"findings": [], "more": False})
    server.on("/jobs", {"jobs": [], "total": 0})
    assert "no finding" in run("findings", *options, "--limit", "7").stdout
    asked = {name: values[0] for name, values in server.asked[0].parameters.items()}
    assert asked == dict(part.split("=") for part in (*parameters.split("&"), "limit=7"))


@pytest.mark.parametrize(
    ("state", "number", "line", "style"),
    [
        (JobState.RUNNING, 0, "past critical: XID 79", "dim"),
        (JobState.RUNNING, 1, "critical: XID 79", "bold red"),
        (JobState.FAILED, 0, "critical: XID 79", "bold red"),
    ],
)
def test_only_a_running_job_has_past_findings(state, number, line, style):
    one = FindingSummary(
        id="j", project="p", severity=Severity.CRITICAL, count=1, rules=["xid"], sentence="XID 79", open=number
    )
    assert (format_summary(one, state), choose_summary_style(one, state)) == (line, style)
