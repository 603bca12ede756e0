import json

import pytest

DAYS = {"raw_days": 15, "minute_days": 90, "hour_days": 730}


@pytest.fixture
def projects(server):
    """Prepare a server with jobs in one project, and a separate retention for another project."""
    server.on("/retention", DAYS)
    server.on("/projects/visoin/retention", DAYS)
    server.on("/projects/new/retention", {**DAYS, "raw_days": 30})
    server.on("/jobs", lambda asked: (200, {"jobs": [] if "project" in asked.parameters else [JOB], "total": 0}, {}))
    return server


JOB = {"id": "a", "project": "vision", "state": "Running", "created": 0, "recorded": True}


@pytest.mark.parametrize("more", [(), ("--json",), ("--default", "--yes")])
def test_a_project_without_jobs_is_an_error_with_similar_names(projects, run, more):
    result = run("retention", "--project", "visoin", *more)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.exception.message == "there are no jobs in project 'visoin'; did you mean vision?"
    assert all(asked.method == "GET" for asked in projects.asked)


def test_a_retention_may_precede_the_first_job(projects, run):
    assert json.loads(run("retention", "--project", "new", "--json").stdout)["raw_days"] == 30
    projects.on("/projects/visoin/retention", {**DAYS, "hour_days": 800}, "PUT")
    assert "800 days" in run("retention", "--project", "visoin", "--hour-days", "800").stdout
