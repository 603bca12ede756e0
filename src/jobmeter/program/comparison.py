"""Jobs side by side, for programs and notebooks."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Union

from jobmeter.cli.compare import change
from jobmeter.cli.output import format_duration
from jobmeter.client.api import Api
from jobmeter.errors import InvalidRequestError, LimitExceededError, NotFoundError, QueryTimeoutError
from jobmeter.model.answers import ComparedLine
from jobmeter.model.job_answers import ComparedJob, Comparison
from jobmeter.model.phase import PhaseDifference
from jobmeter.model.quantity import format_quantity
from jobmeter.program import html
from jobmeter.program.frames import Columns, Table

if TYPE_CHECKING:
    from jobmeter.program.job import JobHandle


class JobComparison(Table):
    """Jobs side by side. Its table has a row for each job and metric; ``change`` is the difference to the first job."""

    def __init__(self, answer: Comparison, differences: Sequence[PhaseDifference]) -> None:
        self.answer = answer
        self.differences = differences
        """Causes of the different run time of each job after the first; empty if the server lacks them."""

    @property
    def jobs(self) -> list[ComparedJob]:
        """Jobs with their usage over their lives."""
        return self.answer.jobs

    @property
    def lines(self) -> list[ComparedLine]:
        """Metrics over time, in milliseconds from the start of each job."""
        return self.answer.lines

    @property
    def step(self) -> int:
        """Step of the lines in milliseconds."""
        return self.answer.step

    def columns(self) -> Columns:
        """Return mean, peak and total of each metric of each job."""
        columns: Columns = {name: [] for name in ("metric", "job", "mean", "peak", "total", "unit", "change")}
        for metric in dict.fromkeys(one.metric for job in self.jobs for one in job.summary.metrics):
            first = self.jobs[0].summary.find(metric)
            for job in self.jobs:
                found = job.summary.find(metric)
                if found is None:
                    continue
                changed = (
                    "" if job is self.jobs[0] or first is None else _change(first.job_mean, found.job_mean, found.unit)
                )
                row = (metric, job.job.id, found.job_mean, found.job_max, found.total, found.unit, changed)
                for column, value in zip(columns.values(), row, strict=True):
                    column.append(value)
        return columns

    def __repr__(self) -> str:
        return "\n".join([f"<Comparison of {', '.join(one.job.id for one in self.jobs)}>", *self._list_sentences()])

    def _list_sentences(self) -> list[str]:
        return [one.sentence for one in self.differences]

    def _repr_html_(self) -> str:
        columns = self.columns()
        rows = [
            [
                html.escape_text(metric),
                html.escape_text(job),
                html.escape_text(format_quantity(mean, unit)),
                html.escape_text(format_quantity(peak, unit)),
                html.escape_text(text),
            ]
            for metric, job, mean, peak, _, unit, text in zip(*columns.values(), strict=True)
        ]
        facts = "".join(
            f"<li>{html.escape_text(f'{one.job.id} {one.job.state} {format_duration(one.summary.duration_ms)}')}</li>"
            for one in self.jobs
        )
        said = "".join(f"<p>{html.escape_text(sentence)}</p>" for sentence in self._list_sentences())
        return f"{said}<ol>{facts}</ol>{html.build_table(('metric', 'job', 'mean', 'peak', 'change of mean'), rows)}"


def _change(before: float | None, after: float | None, unit: str) -> str:
    text = change(before, after, unit)
    return "" if text == "-" else text


def compare_jobs(
    api: Api, project: str | None, jobs: Sequence[Union[str, "JobHandle"]], metrics: Sequence[str], step: str | None
) -> JobComparison:
    """Compare jobs, given as handles or names. Raises InvalidRequestError for fewer than two different jobs."""
    ids = list(dict.fromkeys(api.find(job, project).id if isinstance(job, str) else job.id for job in jobs))
    if len(ids) < 2:
        raise InvalidRequestError(f"name at least two different jobs to compare, got {', '.join(ids) or 'none'}", "job")
    answer = api.compare(ids, metrics, step, project)
    try:
        differences = api.read_causes(ids, project)
    except (NotFoundError, LimitExceededError, QueryTimeoutError):  # an earlier release, or jobs that are too large
        differences = []
    return JobComparison(answer, differences)
