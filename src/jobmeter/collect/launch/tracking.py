"""MLflow in the command of a run: its address, and the job, replica and node of its runs."""

from collections.abc import Mapping

from jobmeter.errors import InvalidRequestError
from jobmeter.wire.mlflow.names import check_joinable

TRACKING_URI, TOKEN, RUN_CONTEXT = "MLFLOW_TRACKING_URI", "MLFLOW_TRACKING_TOKEN", "MLFLOW_RUN_CONTEXT"
"""Variables of MLflow's client."""
_CREDENTIALS = (TOKEN, "MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD")


def run_tags(job: str, replica: str, attempt: int, node: str) -> dict[str, str]:
    """Return the tags by which a run of MLflow joins its job; see ``jobmeter.dialects.mlflow``."""
    tags = {"jobmeter.job": job, "jobmeter.replica": replica, "jobmeter.attempt": str(attempt), "jobmeter.node": node}
    return {name: value for name, value in tags.items() if value}


def may_track(environment: Mapping[str, str], job: str) -> bool:
    """Return True if MLflow may log to the job: the user set no other address, and a run id can contain the job id."""
    if any(name in environment for name in (TRACKING_URI, *_CREDENTIALS)):
        return False
    try:
        check_joinable(job)
    except InvalidRequestError:
        return False
    return True
