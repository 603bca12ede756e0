"""MLflow in the command of a run: where it logs, and which job, replica and node its runs belong to."""

import logging
import signal
from collections.abc import Callable, Mapping
from threading import Thread

from jobmeter.client.api import Api
from jobmeter.client.transport import Transport

TRACKING_URI, TOKEN, RUN_CONTEXT = "MLFLOW_TRACKING_URI", "MLFLOW_TRACKING_TOKEN", "MLFLOW_RUN_CONTEXT"
"""Variables of MLflow's client."""
_CREDENTIALS = (TOKEN, "MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD")
_log = logging.getLogger(__name__)
_PATIENCE_SECONDS = 1.0
"""Longest time in seconds that the command waits for its token."""


def run_tags(job: str, replica: str, attempt: int, node: str) -> dict[str, str]:
    """Return the tags by which a run of MLflow joins its job; see ``jobmeter.dialects.mlflow``."""
    tags = {"jobmeter.job": job, "jobmeter.replica": replica, "jobmeter.attempt": str(attempt), "jobmeter.node": node}
    return {name: value for name, value in tags.items() if value}


def tracking(
    environment: Mapping[str, str], connect: Callable[[], Transport], job: str, project: str
) -> dict[str, str]:
    """Return the variables with which MLflow logs to the job; none if the user set any of them.

    The token opens this job alone. There are none either if the server does not answer within a second.
    """
    if any(name in environment for name in (TRACKING_URI, *_CREDENTIALS)):
        return {}
    found: dict[str, str] = {}

    def fetch() -> None:
        try:
            server = connect()
            token = Api(server.with_timeout(_PATIENCE_SECONDS)).run_token(job, project or None).token
        except Exception:  # noqa: BLE001 - the command runs whatever is wrong with the server
            _log.debug("no token for MLflow", exc_info=True)
            return
        found.update({TRACKING_URI: server.server, TOKEN: token})

    # A thread, because looking up a name has no time-out. It may outlive the wait, so it must not take signals that
    # ``Children`` waits for later.
    thread = Thread(target=fetch, name="mlflow-token", daemon=True)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        thread.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    thread.join(_PATIENCE_SECONDS)
    return dict(found)
