"""Experiments: an experiment is only a name, and its id contains the name.

So an experiment needs no record: every name that MLflow allows is an experiment, and `create` returns its id.
"""

from typing import Annotated

from jobmeter.dialects.base import Answer, Steps, answer_with
from jobmeter.dialects.base.request import Request
from jobmeter.dialects.mlflow.requests import answer, operation
from jobmeter.wire.mlflow.experiments import VERSION, check_plain, make_experiment_body, name_experiment
from jobmeter.wire.mlflow.names import PREFIX, VERSION_PATH, make_experiment_id
from jobmeter.wire.mlflow.values import KeyValue


@operation(f"GET {VERSION_PATH}", "runs:read")
class Version(Request, frozen=True):
    """Returns the supported release of MLflow, as text."""

    def _steps(self) -> Steps:
        return answer_with(Answer(200, VERSION.encode(), (), "text/plain; charset=utf-8"))


@operation(f"POST {PREFIX}/experiments/create", "runs:write")
class CreateExperiment(Request, frozen=True, kw_only=True):
    """Returns the id of the experiment of that name: always the same id, because an experiment is only a name."""

    name: Annotated[str, "1 to 500 printable characters."]
    artifact_location: Annotated[str, "Refused: Jobmeter stores no artifacts."] = ""
    tags: Annotated[tuple[KeyValue, ...], "Refused: tag the runs."] = ()

    def _steps(self) -> Steps:
        check_plain(self.artifact_location, self.tags)
        return answer_with(answer({"experiment_id": make_experiment_id(self.name)}))


@operation(f"GET {PREFIX}/experiments/get-by-name", "runs:read")
class GetExperimentByName(Request, frozen=True, kw_only=True):
    """Returns the experiment of that name. Every valid name is an experiment, with or without runs."""

    experiment_name: Annotated[str, "The name."]

    def _steps(self) -> Steps:
        return answer_with(answer({"experiment": make_experiment_body(self.experiment_name)}))


@operation(f"GET {PREFIX}/experiments/get", "runs:read")
class GetExperiment(Request, frozen=True, kw_only=True):
    """Returns the experiment of that id."""

    experiment_id: Annotated[str, "An id from this server."]

    def _steps(self) -> Steps:
        name = name_experiment(self.experiment_id)
        return answer_with(answer({"experiment": make_experiment_body(name)}))
