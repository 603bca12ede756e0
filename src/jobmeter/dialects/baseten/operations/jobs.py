"""Operations on a job: its details, priority and end.

https://docs.baseten.co/reference/training-api/get-training-job
"""

from collections.abc import Generator, Sequence
from typing import Annotated, Any, Literal

from msgspec import Meta

from jobmeter.dialects.base import Context, DeleteJob, MissingFieldError, RecordJobs, Steps, StopJob, ask
from jobmeter.dialects.base.request import Choice, Request
from jobmeter.dialects.baseten.bodies import created, project_body, view_body
from jobmeter.dialects.baseten.names import NAME
from jobmeter.dialects.baseten.requests import (
    JOB_PATH,
    MOST_JOBS,
    PROJECT_PATH,
    PROJECTS_PATH,
    BasetenJobRequest,
    BasetenProjectRequest,
    answer,
    job_bodies,
    operation,
    path_operation,
)
from jobmeter.errors import ConflictError, InvalidRequestError, NotFoundError
from jobmeter.model.job import JobFilter, JobSize, JobState, Project, ProjectsQuestion, SizesQuestion
from jobmeter.model.question import Question
from jobmeter.model.record import JobRecord, Records
from jobmeter.model.time import iso
from jobmeter.query.request import JobQuestion

Bodies = Generator[Question[Any], Any, list[dict[str, Any]]]


@operation(f"GET {PROJECTS_PATH}", "jobs:read", name="get_training_projects", by_resource=True)
class ListTrainingProjects(Request, frozen=True, kw_only=True):
    """The projects that the key sees: its own, or for a key without a project all that have any data.

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
            body = yield from project(name, self.context)
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
        return answer({"training_project": (yield from project(self.training_project_id, self.context))})


@operation(f"GET {PROJECT_PATH}/jobs", "jobs:read", name="get_training_projects_jobs", by_resource=True)
class ListProjectJobs(BasetenProjectRequest, frozen=True, kw_only=True):
    """The project and its newest jobs (at most 1,000), newest first."""

    def _steps(self) -> Steps:
        name = self.training_project_id
        body = yield from project(name, self.context)
        page = yield from ask(JobFilter(projects=frozenset({name}), limit=MOST_JOBS))
        return answer({"training_project": body, "training_jobs": (yield from job_bodies(page.jobs))})


@operation(
    f"GET {PROJECT_PATH}/cache/summary", "jobs:read", name="get_training_projects_cache_summary", by_resource=True
)
class GetCacheSummary(BasetenProjectRequest, frozen=True, kw_only=True):
    """`file_summaries` is empty: Jobmeter measures the size of a cache, not its files."""

    def _steps(self) -> Steps:
        name = self.training_project_id
        yield from project(name, self.context)
        return answer({"timestamp": iso(self.context.now_ms), "project_id": name, "file_summaries": []})


def project(name: str, context: Context) -> Generator[Question[Any], Any, dict[str, Any]]:
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
    return [project_body(one, by_project.get(one.name, JobSize())) for one in projects]


def _newest_first(one: Project) -> tuple[int, str]:
    return (1 if one.latest is None else -created(one.latest)), one.name


MOST_PRIORITY = 2**31 - 1


@operation(f"GET {JOB_PATH}", "jobs:read", name="get_training_projects_jobs_training_job_id", by_resource=True)
class GetTrainingJob(BasetenJobRequest, frozen=True, kw_only=True):
    """The job and its project.

    `instance_type` comes from the job's record, else from its limits and allocations; unknown fields are null if null
    is allowed, else empty texts or 0. `current_status` is `extra.baseten.current_status` of the record if that word
    fits the job's state. `user` is absent if it is unknown.
    """

    def _steps(self) -> Steps:
        view = yield from ask(JobQuestion(self.ref))
        body = yield from project(view.job.project, self.context)
        return answer({"training_project": body, "training_job": view_body(view)})


@operation(f"PATCH {JOB_PATH}", "jobs:write", name="patch_training_projects_jobs")
class UpdateTrainingJob(BasetenJobRequest, frozen=True, kw_only=True):
    """Stores the fields in `extra.baseten` of the job's record, while the job is pending."""

    priority: Annotated[int | None, "A whole number.", Meta(ge=-MOST_PRIORITY, le=MOST_PRIORITY)] = None
    availability_model: Annotated[Literal["dedicated", "spot"] | None, Choice(("dedicated", "spot"))] = None

    def _steps(self) -> Steps:
        changes: dict[str, Any] = {"priority": self.priority, "availability_model": self.availability_model}
        changes = {name: value for name, value in changes.items() if value is not None}
        view = yield from ask(JobQuestion(self.ref))
        if changes:
            if view.job.state is not JobState.QUEUED:
                raise ConflictError(f"Only a pending job can be changed; job {view.job.id} is not pending.")
            record = JobRecord(job_id=view.job.id, project=view.job.project, extra={NAME: changes})
            yield from ask(RecordJobs(Records(jobs=[record])))
            view = yield from ask(JobQuestion(self.ref))
        return answer({"training_job": view_body(view)})


@path_operation(f"DELETE {JOB_PATH}", "jobs:delete", name="delete_training_projects_jobs")
class DeleteJobWithData(BasetenJobRequest, frozen=True, kw_only=True):
    """Deletes the job, its samples, its logs and its events. Needs an administrator's key."""

    def _steps(self) -> Steps:
        job = yield from ask(DeleteJob(self.ref))
        return answer({"id": job.id, "deleted": True, "training_project_id": job.project})


@path_operation(f"POST {JOB_PATH}/stop", "jobs:write", name="post_training_projects_jobs_stop")
class MarkJobStopped(BasetenJobRequest, frozen=True, kw_only=True):
    """Marks the job as stopped.

    Jobmeter does not end processes: the system that runs the job does. A job that has ended is refused with `CONFLICT`.
    """

    def _steps(self) -> Steps:
        yield from ask(StopJob(self.ref))
        view = yield from ask(JobQuestion(self.ref))
        return answer({"training_job": view_body(view)})


@operation(f"GET {JOB_PATH}/auth_codes", "jobs:read", name="get_training_projects_jobs_auth_codes", by_resource=True)
class ListAuthCodes(BasetenJobRequest, frozen=True, kw_only=True):
    """`auth_codes` is empty: Jobmeter opens no sessions."""

    def _steps(self) -> Steps:
        yield from ask(JobQuestion(self.ref))
        return answer({"auth_codes": []})


@operation(f"GET {JOB_PATH}/download", "jobs:read", name="get_training_projects_jobs_download", by_resource=True)
class ListUploads(BasetenJobRequest, frozen=True, kw_only=True):
    """`artifact_presigned_urls` is empty: Jobmeter stores no uploads."""

    def _steps(self) -> Steps:
        yield from ask(JobQuestion(self.ref))
        return answer({"artifact_presigned_urls": []})
