"""The checkpoints that a job reported, and the addresses of their files.

https://docs.baseten.co/reference/training-api/get-training-job-checkpoints
"""

from typing import Annotated, Any
from urllib.parse import unquote, urlsplit

from msgspec import Meta

from jobmeter.dialects.base import Steps, ask
from jobmeter.dialects.baseten.bodies import compute_creation, make_view_body
from jobmeter.dialects.baseten.requests import JOB_PATH, BasetenJobRequest, answer, operation
from jobmeter.model.job import Checkpoint, Job
from jobmeter.model.time import format_iso
from jobmeter.query.request import JobQuestion

MOST_FILES = 1_000


@operation(f"GET {JOB_PATH}/checkpoints", "jobs:read", name="get_training_projects_jobs_checkpoints", by_resource=True)
class ListCheckpoints(BasetenJobRequest, frozen=True, kw_only=True):
    """The job and the checkpoints that its records report, oldest first. An unknown size is 0."""

    def _steps(self) -> Steps:
        view = yield from ask(JobQuestion(self.ref))
        bodies = [_checkpoint(one, view.job) for one in _sort_checkpoints(view.job)]
        return answer({"training_job": make_view_body(view), "checkpoints": bodies})


@operation(
    f"GET {JOB_PATH}/checkpoint_files",
    "jobs:read",
    name="get_training_projects_jobs_checkpoint_files",
    by_resource=True,
)
class ListCheckpointFiles(BasetenJobRequest, frozen=True, kw_only=True):
    """The addresses in the records of checkpoints, checkpoint after checkpoint.

    They are returned as they were reported, not signed. The size of one file among several is unknown and 0.
    """

    page_size: Annotated[int, "Files of a page.", Meta(ge=1, le=MOST_FILES)] = MOST_FILES
    page_token: Annotated[int, "`next_page_token` of the previous page.", Meta(ge=0, le=2**53)] = 0

    def _steps(self) -> Steps:
        view = yield from ask(JobQuestion(self.ref))
        files = [_file(one, url, view.job) for one in _sort_checkpoints(view.job) for url in one.files]
        after = self.page_token + self.page_size
        return answer(
            {
                "presigned_urls": files[self.page_token : after],
                "next_page_token": after if after < len(files) else None,
                "total_count": len(files),
            }
        )


def _sort_checkpoints(job: Job) -> list[Checkpoint]:
    return sorted(job.checkpoints, key=lambda one: (_moment(one, job), one.id))


def _moment(one: Checkpoint, job: Job) -> int:
    return compute_creation(job) if one.created is None else one.created


def _checkpoint(one: Checkpoint, job: Job) -> dict[str, Any]:
    adapter = one.extra.get("lora_adapter_config")
    state = one.extra.get("sync_status")
    return {
        "checkpoint_id": one.id,
        "created_at": format_iso(_moment(one, job)),
        "checkpoint_type": one.type,
        "base_model": one.base_model or None,
        "lora_adapter_config": adapter if isinstance(adapter, dict) else None,
        "size_bytes": one.size or 0,
        "sync_status": state if isinstance(state, str) else None,
        "training_job_id": job.id,
        "id": one.id,
    }


def _file(one: Checkpoint, url: str, job: Job) -> dict[str, Any]:
    return {
        "url": url,
        "relative_file_name": f"{one.id}/{_name(one, url)}",
        "node_rank": 0,
        "size_bytes": (one.size or 0) if len(one.files) == 1 else 0,
        "last_modified": format_iso(_moment(one, job)),
    }


def _name(one: Checkpoint, url: str) -> str:
    """Return the path below the checkpoint's folder in the address, else its last part, else the file's number."""
    path = unquote(urlsplit(url).path)
    return path.partition(f"/{one.id}/")[2] or path.rpartition("/")[2] or str(one.files.index(url))
