"""MLflow's runs: their form in a job's record, and their body in answers.

``extra.mlflow.runs`` of a job has its runs by id, ``extra.mlflow.experiments`` the experiments of these runs. A run
that names a job joins it; any other run is a job with the run's id.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from jobmeter.model.job import Job
from jobmeter.wire.mlflow.names import NAME, RUN_NAME

ACTIVE, DELETED = "active", "deleted"


class Run(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Run as recorded. Times in epoch milliseconds. ``job`` and ``project`` name the record that has it."""

    id: str = ""
    project: str = ""
    job: str = ""
    experiment: str
    status: str
    user: str = ""
    start: int
    end: int | None = None
    deleted: bool = False
    local: bool = False
    """True if the client stores artifacts in its own folder, like a client without a server."""
    replica: str = ""
    node: str = ""
    attempt: int = 0
    """Replica and attempt of its measurements; empty and 0 if unknown. Later tags do not change them."""
    tags: dict[str, str] = {}
    params: dict[str, str] = {}

    @property
    def name(self) -> str:
        """Name of the run."""
        return self.tags.get(RUN_NAME, "")

    @property
    def artifact_uri(self) -> str:
        """Address at which the client stores files. The server itself refuses files."""
        return f"mlruns/{self.experiment}/{self.id}/artifacts" if self.local else f"mlflow-artifacts:/{self.id}"


def make_path(*names: str) -> str:
    """Return the key in ``extra`` of a value in nested objects; see ``JobRecord``."""
    return "/".join(name.replace("~", "~0").replace("/", "~1") for name in names)


def iterate_runs(job: Job) -> Iterator[Run]:
    """Yield the runs in a job's record. Skips entries of other writers in another form."""
    given = job.extra.get(NAME, {}).get("runs")
    for run, fields in given.items() if isinstance(given, dict) else ():
        try:
            yield msgspec.convert({**fields, "id": run, "project": job.project, "job": job.id}, Run)
        except (msgspec.ValidationError, TypeError):
            continue


def make_info(run: Run) -> dict[str, Any]:
    """Return MLflow's ``RunInfo``."""
    return {
        "run_id": run.id,
        "run_uuid": run.id,
        "run_name": run.name,
        "experiment_id": run.experiment,
        "user_id": run.user,
        "status": run.status,
        "start_time": run.start,
        **({} if run.end is None else {"end_time": run.end}),
        "artifact_uri": run.artifact_uri,
        "lifecycle_stage": DELETED if run.deleted else ACTIVE,
    }


def make_body(run: Run, metrics: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return MLflow's ``Run`` with the newest value of each metric."""
    return {
        "info": make_info(run),
        "data": {"metrics": metrics, "params": _pairs(run.params), "tags": _pairs(run.tags)},
        "inputs": {},
    }


def _pairs(texts: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"key": key, "value": texts[key]} for key in sorted(texts)]
