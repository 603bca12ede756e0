"""MLflow's experiments. An experiment is only a name, and its id contains the name."""

from collections.abc import Sequence
from typing import Any

from jobmeter.errors import InvalidRequestError, NotFoundError
from jobmeter.wire.mlflow.names import make_experiment_id, parse_experiment_id
from jobmeter.wire.mlflow.values import KeyValue

VERSION = "3.17.0"
"""Release of MLflow whose requests are supported."""


def check_plain(artifact_location: str, tags: Sequence[KeyValue]) -> None:
    """Raise InvalidRequestError if an experiment has more than a name."""
    for field, given in (("artifact_location", artifact_location), ("tags", tags)):
        if given:
            raise InvalidRequestError(
                f"Jobmeter stores no {field} of an experiment: leave {field} out, and tag the runs.", field
            )


def name_experiment(experiment: str) -> str:
    """Return the name of the experiment with an id. Raises NotFoundError."""
    name = parse_experiment_id(experiment)
    if name is None:
        raise NotFoundError(
            f"No Experiment with id={experiment[:300]} exists: ids of Jobmeter contain the name",
            "experiment",
            experiment,
        )
    return name


def make_experiment_body(name: str) -> dict[str, Any]:
    """Return MLflow's ``Experiment``."""
    experiment = make_experiment_id(name)
    return {
        "experiment_id": experiment,
        "name": name,
        "artifact_location": f"mlflow-artifacts:/{experiment}",
        "lifecycle_stage": "active",
    }
