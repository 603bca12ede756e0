"""Experiments: an experiment is only a name, and its id contains the name.

So an experiment needs no record: every name that MLflow allows is an experiment, and `create` answers its id.
"""

from typing import Annotated, Any

from msgspec import Meta

from jobmeter.dialects.base import Answer, Steps, constant
from jobmeter.dialects.base.request import Request
from jobmeter.dialects.mlflow.names import PREFIX, VERSION_PATH, experiment_id, experiment_name
from jobmeter.dialects.mlflow.requests import KeyValue, answer, operation
from jobmeter.errors import InvalidRequestError, NotFoundError

VERSION = "3.17.0"
"""The release of MLflow whose requests are supported."""


@operation(f"GET {VERSION_PATH}", "runs:read")
class Version(Request, frozen=True):
    """Answers the release of MLflow whose requests are supported, as text."""

    def _steps(self) -> Steps:
        return constant(Answer(200, VERSION.encode(), (), "text/plain; charset=utf-8"))


@operation(f"POST {PREFIX}/experiments/create", "runs:write")
class CreateExperiment(Request, frozen=True, kw_only=True):
    """Answers the id of the experiment of that name: the same id each time, as an experiment is only a name."""

    name: Annotated[str, Meta(description="1 to 500 printable characters.")]
    artifact_location: Annotated[str, Meta(description="Refused: Jobmeter stores no artifacts.")] = ""
    tags: Annotated[tuple[KeyValue, ...], Meta(description="Refused: tag the runs.")] = ()

    def _steps(self) -> Steps:
        for field in ("artifact_location", "tags"):
            if getattr(self, field):
                raise InvalidRequestError(
                    f"Jobmeter stores no {field} of an experiment: leave {field} out, and tag the runs.", field
                )
        return constant(answer({"experiment_id": experiment_id(self.name)}))


@operation(f"GET {PREFIX}/experiments/get-by-name", "runs:read")
class GetExperimentByName(Request, frozen=True, kw_only=True):
    """Answers the experiment of that name. Every valid name is an experiment, with or without runs."""

    experiment_name: Annotated[str, Meta(description="The name.")]

    def _steps(self) -> Steps:
        return constant(answer({"experiment": _experiment(experiment_id(self.experiment_name), self.experiment_name)}))


@operation(f"GET {PREFIX}/experiments/get", "runs:read")
class GetExperiment(Request, frozen=True, kw_only=True):
    """Answers the experiment of that id."""

    experiment_id: Annotated[str, Meta(description="An id from this server.")]

    def _steps(self) -> Steps:
        given = self.experiment_id
        name = experiment_name(given)
        if name is None:
            raise NotFoundError(
                f"No Experiment with id={given[:300]} exists: ids of Jobmeter contain the name", "experiment", given
            )
        return constant(answer({"experiment": _experiment(given, name)}))


def _experiment(experiment: str, name: str) -> dict[str, Any]:
    return {
        "experiment_id": experiment,
        "name": name,
        "artifact_location": f"mlflow-artifacts:/{experiment}",
        "lifecycle_stage": "active",
    }
