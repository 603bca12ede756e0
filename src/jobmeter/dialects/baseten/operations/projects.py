"""Projects: a project of Baseten is a project of keys and jobs here, and its id is its name.

https://docs.baseten.co/reference/training-api/list-training-projects
"""

from collections.abc import Generator, Sequence
from typing import Any

from jobmeter.access.call import Call
from jobmeter.dialects.base import Context, MissingFieldError, Parameter, Steps, execute
from jobmeter.dialects.baseten.arguments import Arguments
from jobmeter.dialects.baseten.bodies import created, project_body
from jobmeter.dialects.baseten.operations.common import MOST_JOBS, answer, job_bodies, operation
from jobmeter.errors import InvalidRequestError, NotFoundError
from jobmeter.model.job import JobFilter, JobSize, Project, ProjectsQuestion, SizesQuestion
from jobmeter.model.question import Question
from jobmeter.model.time import iso

Bodies = Generator[Question[Any], Any, list[dict[str, Any]]]


def list_projects(call: Call, context: Context) -> Steps:  # noqa: ARG001 - the shape of every operation
    """Return every project of the key, the one with the newest job first: `truss` prints them from the end."""
    found = yield from execute(ProjectsQuestion())
    if context.project is not None and context.project not in {project.name for project in found}:
        found = [*found, Project(name=context.project)]
    bodies = yield from _bodies(sorted(found, key=_newest_first))
    return answer({"training_projects": bodies})


def get_project(call: Call, context: Context) -> Steps:  # noqa: ARG001
    """Return a project."""
    return answer({"training_project": (yield from project(context.path["training_project_id"], context))})


def upsert_project(call: Call, context: Context) -> Steps:
    """Return the project of that name, if the key sees it. Projects are not created: each belongs to a key."""
    name = (Arguments(call).object("training_project") or {}).get("name")
    if name is None or name == "":
        raise MissingFieldError("training_project.name is required", "training_project.name")
    if not isinstance(name, str):
        raise InvalidRequestError("training_project.name must be a text", "training_project.name")
    try:
        body = yield from project(name, context)
    except NotFoundError as error:
        named = context.project or "one that has jobs"
        raise InvalidRequestError(
            f"training_project.name {name[:64]!r} is no project of this key: projects come with keys and jobs, and "
            f"this key's is {named}",
            "training_project.name",
        ) from error
    return answer({"training_project": body})


def list_jobs(call: Call, context: Context) -> Steps:  # noqa: ARG001
    """Return the jobs of one project, newest first."""
    name = context.path["training_project_id"]
    body = yield from project(name, context)
    page = yield from execute(JobFilter(projects=frozenset({name}), limit=MOST_JOBS))
    return answer({"training_project": body, "training_jobs": (yield from job_bodies(page.jobs))})


def project(name: str, context: Context) -> Generator[Question[Any], Any, dict[str, Any]]:
    """Return the body of one project. Raises NotFoundError if the key sees no project of that name."""
    found = yield from execute(ProjectsQuestion(names=frozenset({name})))
    if not found and name == context.project:
        found = [Project(name=name)]
    if not found:
        raise NotFoundError(f"There is no training project {name[:64]!r}.", "project", name)
    (body,) = yield from _bodies(found)
    return body


def cache_summary(call: Call, context: Context) -> Steps:  # noqa: ARG001
    """Return no files: Jobmeter measures only the size of the project's cache."""
    name = context.path["training_project_id"]
    yield from project(name, context)
    return answer({"timestamp": iso(context.now_ms), "project_id": name, "file_summaries": []})


def _bodies(projects: Sequence[Project]) -> Bodies:
    latest = [one.latest for one in projects if one.latest is not None]
    sizes = yield from execute(SizesQuestion(jobs=tuple((job.project, job.id) for job in latest)))
    by_project = {job.project: size for job, size in zip(latest, sizes, strict=True)}
    return [project_body(one, by_project.get(one.name, JobSize())) for one in projects]


def _newest_first(one: Project) -> tuple[int, str]:
    return (1 if one.latest is None else -created(one.latest)), one.name


OPERATIONS = (
    operation(
        "get_training_projects",
        "GET",
        "/v1/training_projects",
        list_projects,
        (
            "The projects that the key sees: its own, or for a key without a project all that have any data; the one "
            "with the newest job first."
        ),
        by_resource=True,
    ),
    operation(
        "post_training_projects",
        "POST",
        "/v1/training_projects",
        upsert_project,
        "The project of that name. No project is created: a project begins with a key or its first job.",
        Parameter("training_project", "body", "`{name}`: a project that the key sees.", required=True),
        action="jobs:write",
    ),
    operation(
        "get_training_projects_training_project_id",
        "GET",
        "/v1/training_projects/{training_project_id}",
        get_project,
        "One project.",
        by_resource=True,
    ),
    operation(
        "get_training_projects_jobs",
        "GET",
        "/v1/training_projects/{training_project_id}/jobs",
        list_jobs,
        f"One project and its newest {MOST_JOBS} jobs, newest first.",
        by_resource=True,
    ),
    operation(
        "get_training_projects_cache_summary",
        "GET",
        "/v1/training_projects/{training_project_id}/cache/summary",
        cache_summary,
        "`file_summaries` is empty: Jobmeter measures the size of a cache, not its files.",
        by_resource=True,
    ),
)
