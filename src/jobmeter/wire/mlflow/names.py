"""Names of MLflow and ours: metrics, experiments, runs and states, each mapped in both directions."""

import re
from collections.abc import Mapping
from typing import NamedTuple

from jobmeter.errors import InvalidRequestError, LimitExceededError
from jobmeter.model.job import JobState

NAME = "mlflow"
PREFIX = "/api/2.0/mlflow"
ARTIFACTS = ("/api/2.0/mlflow-artifacts/", f"{PREFIX}/artifacts/")
VERSION_PATH = "/version"
_OWN = (f"{PREFIX}/", "/api/3.0/mlflow/", ARTIFACTS[0])

MAX_KEY, MAX_PARAM, MAX_TAG, MAX_EXPERIMENT, MAX_RUN_ID = 250, 6_000, 8_000, 500, 256
"""Most characters of MLflow's names and values."""
MOST_METRICS, MOST_PARAMS, MOST_TAGS = 1_000, 100, 100
"""Most entries of one batch, as at MLflow's server."""

APP = "app."
STEP = "external.mlflow.step"
"""Metric with the step of every logged value, by ``KEY_LABEL``: it lists the names of a run's metrics."""
KEY_LABEL, RUN_LABEL, VALUE_LABEL = "mlflow_key", "mlflow_run", "mlflow_value"

STATES: Mapping[str, JobState] = {
    "RUNNING": JobState.RUNNING,
    "SCHEDULED": JobState.QUEUED,
    "FINISHED": JobState.SUCCEEDED,
    "FAILED": JobState.FAILED,
    "KILLED": JobState.STOPPED,
}
"""Our state of each of MLflow's statuses."""
RUN_NAME, USER = "mlflow.runName", "mlflow.user"
JOB, REPLICA, NODE, ATTEMPT = "jobmeter.job", "jobmeter.replica", "jobmeter.node", "jobmeter.attempt"
"""Tags of MLflow's and ours; ``jobmeter.mlflow_context`` sets ours."""

DEFAULT_ID, DEFAULT_NAME = "0", "Default"
_EXPERIMENT = "exp_"
_JOINT = "--"
"""Separator in the id of a run that joined a job; an escaped job id does not contain it."""
_FIRST = "0-"
"""Start of the id of a run whose job's escaped id does not start with a letter or digit, as MLflow's clients demand."""
_KEY = re.compile(r"[/\w.\- :]+")
_PLAIN = re.compile(r"[A-Za-z0-9._:-]{1,196}")
_NOT_PLAIN = re.compile(r"[^A-Za-z0-9._:-]")
_MOST_PLAIN = 196
_TO_ESCAPE = re.compile(r"[^A-Za-z0-9_]")
_ESCAPED = re.compile(r"(?:-[0-9A-F]{2})+")


def owns(path: str) -> bool:
    """Return True for paths of MLflow's APIs."""
    return path == VERSION_PATH or path.startswith(_OWN)


def check_key(key: str, field: str) -> str:
    """Check the name of a metric, parameter or tag. Raises InvalidRequestError in MLflow's terms."""
    if not key:
        raise InvalidRequestError(f"Missing value for required parameter '{field}'.", field)
    if len(key) > MAX_KEY:
        raise LimitExceededError(f"'{field}' exceeds the maximum length of {MAX_KEY} characters", field)
    if not _KEY.fullmatch(key) or not key.isprintable():
        raise InvalidRequestError(
            f"Invalid value {key[:64]!r} for parameter '{field}': names may only contain slashes, alphanumerics, "
            "underscores, periods, dashes, colons, and spaces.",
            field,
        )
    return key


def check_text(text: str, most: int, field: str) -> str:
    """Check the length of a value. Raises LimitExceededError."""
    if len(text) > most:
        raise LimitExceededError(f"'{field}' exceeds the maximum length of {most} characters", field)
    return text


def convert_key(key: str) -> tuple[str, str]:
    """Return our metric for MLflow's name, and the value of ``KEY_LABEL``; empty if the metric alone gives the name."""
    if _PLAIN.fullmatch(key):
        return APP + key, ""
    return APP + _NOT_PLAIN.sub("_", key)[:_MOST_PLAIN], key


def escape(text: str) -> str:
    """Write any text in letters, digits, ``_`` and ``-``; each other byte becomes ``-XX``."""
    return _TO_ESCAPE.sub(lambda one: "".join(f"-{byte:02X}" for byte in one[0].encode()), text)


def unescape(text: str) -> str | None:
    """Read a text of ``escape``; None for any other text."""
    try:
        found = _ESCAPED.sub(lambda one: bytes.fromhex(one[0].replace("-", "")).decode(), text)
    except UnicodeDecodeError:
        return None
    return found if escape(found) == text else None


def make_experiment_id(name: str) -> str:
    """Return the id of an experiment, which contains its name. Raises InvalidRequestError."""
    if not name.strip() or not name.isprintable():
        raise InvalidRequestError("Invalid experiment name: give a name in printable characters.", "name")
    check_text(name, MAX_EXPERIMENT, "name")
    return DEFAULT_ID if name == DEFAULT_NAME else _EXPERIMENT + escape(name)


def parse_experiment_id(text: str) -> str | None:
    """Return the name of the experiment with that id; None for a text that is no such id."""
    if text == DEFAULT_ID:
        return DEFAULT_NAME
    name = unescape(text[len(_EXPERIMENT) :]) if text.startswith(_EXPERIMENT) else None
    try:
        return name if name and make_experiment_id(name) == text else None
    except InvalidRequestError:
        return None


class RunPlace(NamedTuple):
    """Job of a run, and True if the job has a life without the run."""

    job: str
    joined: bool


def run_id(job: str, unique: str) -> str:
    """Return the id of a run that joins a job; ``unique`` alone if the job's id is too long for MLflow."""
    escaped = escape(job)
    joined = f"{_FIRST if escaped[:1] in {'-', '_'} else ''}{escaped}{_JOINT}{unique[:12]}"
    return joined if job and len(joined) <= MAX_RUN_ID else unique


def check_joinable(job: str) -> None:
    """Raise InvalidRequestError for a job whose id does not fit into the id of a run."""
    if not parse_run(run_id(job, "0" * 12)).joined:
        raise InvalidRequestError(
            f"the job id {job[:128]!r} does not fit into the id of an MLflow run: give the job a shorter id", "job"
        )


def parse_run(run: str) -> RunPlace:
    """Return the job of a run from the run's id."""
    outer, joint, _ = run.rpartition(_JOINT)
    job = unescape(outer) or unescape(outer.removeprefix(_FIRST)) if joint else None
    return RunPlace(job, joined=True) if job else RunPlace(run, joined=False)
