"""Projects: a project of Baseten is a project of keys and jobs here, and its id is its name.

https://docs.baseten.co/reference/training-api/list-training-projects
"""

from collections.abc import Generator, Sequence
from typing import Annotated, Any

from jobmeter.dialects.base import Context, MissingFieldError, Steps, ask
from jobmeter.dialects.base.request import Request
from jobmeter.dialects.baseten.bodies import compute_creation, make_project_body
from jobmeter.dialects.baseten.requests import (
    MOST_JOBS,
    PROJECT_PATH,
    PROJECTS_PATH,
    BasetenProjectRequest,
    answer,
    operation,
    read_job_bodies,
)
from jobmeter.errors import InvalidRequestError, NotFoundError
from jobmeter.model.job import JobFilter, JobSize, Project, ProjectsQuestion, SizesQuestion
from jobmeter.model.question import Question
from jobmeter.model.time import format_iso

Bodies = Generator[Question[Any], Any, list[dict[str, Any]]]


@operation(f"GET {PROJECTS_PATH}", "jobs:read", name="get_training_projects", by_resource=True)
class ListTrainingProjects(Request, frozen=True, kw_only=True):
    """The projects that the key sees: its own, or every project with data for a key without a project.

    The project with the newest job comes first: `truss` prints them from the end.
    """

    def _steps(self) -> Steps:
        own = self.context.project
        found = yield from ask(ProjectsQuestion())
        if own is not None and own not in {project.name for project in found}:
            found = [*found, Project(name=own)]
        bodies = yield from _bodies(sorted(found, key=_newest_first))
        return answer({"training_projects": bodies})


@operation(f"POST {PROJECTS_PATH}", "jobs:write", name="post_training_projects")
class UpsertTrainingProject(Request, frozen=True, kw_only=True):
    """The project of that name. No project is created: a project begins with a key or its first job."""

    training_project: Annotated[dict[str, Any], "`{name}`: a project that the key sees."]

    def _steps(self) -> Steps:
        name = self.training_project.get("name")
        if name is None or name == "":
            raise MissingFieldError("training_project.name is required", "training_project.name")
        if not isinstance(name, str):
            raise InvalidRequestError("training_project.name must be a text", "training_project.name")
        try:
            body = yield from read_project(name, self.context)
        except NotFoundError as error:
            named = self.context.project or "one that has jobs"
            raise InvalidRequestError(
                f"training_project.name {name[:64]!r} is no project of this key: projects come with keys and jobs, and "
                f"this key's is {named}",
                "training_project.name",
            ) from error
        return answer({"training_project": body})


@operation(f"GET {PROJECT_PATH}", "jobs:read", name="get_training_projects_training_project_id", by_resource=True)
class GetTrainingProject(BasetenProjectRequest, frozen=True, kw_only=True):
    """The project."""

    def _steps(self) -> Steps:
        return answer({"training_project": (yield from read_project(self.training_project_id, self.context))})


@operation(f"GET {PROJECT_PATH}/jobs", "jobs:read", name="get_training_projects_jobs", by_resource=True)
class ListProjectJobs(BasetenProjectRequest, frozen=True, kw_only=True):
    """The project and its newest jobs (at most 1,000), newest first."""

    def _steps(self) -> Steps:
        name = self.training_project_id
        body = yield from read_project(name, self.context)
        page = yield from ask(JobFilter(projects=frozenset({name}), limit=MOST_JOBS))
        return answer({"training_project": body, "training_jobs": (yield from read_job_bodies(page.jobs))})


@operation(
    f"GET {PROJECT_PATH}/cache/summary", "jobs:read", name="get_training_projects_cache_summary", by_resource=True
)
class GetCacheSummary(BasetenProjectRequest, frozen=True, kw_only=True):
    """`file_summaries` is empty: Jobmeter measures the size of a cache, not its files."""

    def _steps(self) -> Steps:
        name = self.training_project_id
        yield from read_project(name, self.context)
        return answer({"timestamp": format_iso(self.context.now_ms), "project_id": name, "file_summaries": []})


def read_project(name: str, context: Context) -> Generator[Question[Any], Any, dict[str, Any]]:
    """Return the body of one project. Raises NotFoundError if the key sees no project of that name."""
    found = yield from ask(ProjectsQuestion(names=frozenset({name})))
    if not found and name == context.project:
        found = [Project(name=name)]
    if not found:
        raise NotFoundError(f"There is no training project {name[:64]!r}.", "project", name)
    (body,) = yield from _bodies(found)
    return body


def _bodies(projects: Sequence[Project]) -> Bodies:
    latest = [one.latest for one in projects if one.latest is not None]
    sizes = yield from ask(SizesQuestion(jobs=tuple((job.project, job.id) for job in latest)))
    by_project = {job.project: size for job, size in zip(latest, sizes, strict=True)}
    return [make_project_body(one, by_project.get(one.name, JobSize())) for one in projects]


def _newest_first(one: Project) -> tuple[int, str]:
    return (1 if one.latest is None else -compute_creation(one.latest)), one.name
