"""Experiments: an experiment is only a name, and its id contains the name.

So an experiment needs no record: every name that MLflow allows is an experiment, and `create` answers its id.
"""

from typing import Any

from jobmeter.access.call import Call
from jobmeter.dialects.base import Answer, Context, Operation, Steps, only
from jobmeter.dialects.mlflow.names import VERSION_PATH, experiment_id, experiment_name
from jobmeter.dialects.mlflow.operations.common import answer, operation, parameter
from jobmeter.dialects.mlflow.requests import ExperimentById, ExperimentByName, NewExperiment, read
from jobmeter.errors import InvalidRequestError, NotFoundError

VERSION = "3.17.0"
"""The release of MLflow whose requests are supported."""


def version(call: Call, context: Context) -> Steps:  # noqa: ARG001 - the shape of every operation
    """Return the version as text."""
    return only(Answer(200, VERSION.encode(), (), "text/plain; charset=utf-8"))


def create(call: Call, context: Context) -> Steps:  # noqa: ARG001
    """Return the id of the experiment of that name."""
    given = read(call, NewExperiment)
    for field in ("artifact_location", "tags"):
        if getattr(given, field):
            raise InvalidRequestError(
                f"Jobmeter stores no {field} of an experiment: leave {field} out, and tag the runs.", field
            )
    return only(answer({"experiment_id": experiment_id(given.name)}))


def get_by_name(call: Call, context: Context) -> Steps:  # noqa: ARG001
    """Return the experiment of that name."""
    name = read(call, ExperimentByName).experiment_name
    return only(answer({"experiment": _experiment(experiment_id(name), name)}))


def get(call: Call, context: Context) -> Steps:  # noqa: ARG001
    """Return the experiment of that id."""
    given = read(call, ExperimentById).experiment_id
    name = experiment_name(given)
    if name is None:
        raise NotFoundError(
            f"No Experiment with id={given[:300]} exists: ids of Jobmeter contain the name", "experiment", given
        )
    return only(answer({"experiment": _experiment(given, name)}))


def _experiment(experiment: str, name: str) -> dict[str, Any]:
    return {
        "experiment_id": experiment,
        "name": name,
        "artifact_location": f"mlflow-artifacts:/{experiment}",
        "lifecycle_stage": "active",
    }


OPERATIONS = (
    Operation(
        name="Version",
        action="runs:read",
        method="GET",
        path=VERSION_PATH,
        answer=version,
        parameters=(),
        text=f"`{VERSION}`: the release of MLflow whose requests are supported.",
    ),
    operation(
        "CreateExperiment",
        "POST",
        "/experiments/create",
        create,
        "The id of the experiment of that name. It is the same id each time: an experiment is only a name.",
        parameter("name", "1 to 500 printable characters.", required=True),
        parameter("artifact_location", "Refused: Jobmeter stores no artifacts."),
        parameter("tags", "Refused: tag the runs."),
        action="runs:write",
    ),
    operation(
        "GetExperimentByName",
        "GET",
        "/experiments/get-by-name",
        get_by_name,
        "The experiment of that name. Every valid name is an experiment, with or without runs.",
        parameter("experiment_name", "The name.", required=True, where="query"),
    ),
    operation(
        "GetExperiment",
        "GET",
        "/experiments/get",
        get,
        "The experiment of that id.",
        parameter("experiment_id", "An id from this server.", required=True, where="query"),
    ),
)
