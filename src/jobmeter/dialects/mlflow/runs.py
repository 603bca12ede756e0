"""MLflow's runs in the server's registry: find the job record that has a run."""

from collections.abc import Generator
from typing import Any

from jobmeter.dialects.base import Context, ask
from jobmeter.errors import NotFoundError
from jobmeter.model.question import Question
from jobmeter.query.request import HeadQuestion, JobRef
from jobmeter.wire.mlflow.names import parse_run
from jobmeter.wire.mlflow.runs import Run, iterate_runs


def find(run: str, context: Context) -> Generator[Question[Any], Any, Run]:
    """Find a run. Raises NotFoundError for an unknown run, and for a run of another job than the token's."""
    missing = NotFoundError(f"Run with id={run[:300]!r} not found", "run", run)
    job = parse_run(run).job
    if not 0 < len(job) <= 128 or context.job not in {None, job}:
        raise missing
    try:
        head = yield from ask(HeadQuestion(JobRef(job, context.project)))
    except NotFoundError as error:
        raise missing from error
    found = next((one for one in iterate_runs(head) if one.id == run), None)
    if found is None:
        raise missing
    return found
