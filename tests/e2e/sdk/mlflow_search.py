"""Lists which random runs MLflow's own SearchUtils finds, in order: JSON from standard input to standard output."""

import json
import sys

from mlflow.entities import Metric, Param, Run, RunData, RunInfo, RunTag
from mlflow.exceptions import MlflowException
from mlflow.utils.search_utils import SearchUtils


def run_of(given):
    info = RunInfo(
        run_id=given["id"],
        experiment_id="0",
        user_id=given["user"],
        status=given["status"],
        start_time=given["start"],
        end_time=given["end"],
        lifecycle_stage="active",
        artifact_uri=f"mlflow-artifacts:/{given['id']}",
        run_name=given["tags"].get("mlflow.runName", ""),
    )
    metrics = [Metric(key, value, 0, 0) for key, value in given["metrics"].items()]
    params = [Param(key, value) for key, value in given["params"].items()]
    tags = [RunTag(key, value) for key, value in given["tags"].items()]
    return Run(info, RunData(metrics=metrics, params=params, tags=tags))


EXAMPLE = run_of({"id": "r", "user": "", "status": "", "start": 0, "end": 0, "metrics": {}, "params": {}, "tags": {}})


def answer(case):
    runs = [run_of(one) for one in case["runs"]]
    try:
        # Without this, MLflow checks a condition only if the earlier ones hold.
        for clause in SearchUtils.parse_search_filter(case["filter"]):
            SearchUtils._does_run_match_clause(EXAMPLE, clause)
        found = SearchUtils.sort(SearchUtils.filter(runs, case["filter"]), case["order"])
    except MlflowException:
        return None
    return [one.info.run_id for one in found]


if __name__ == "__main__":
    json.dump([answer(case) for case in json.load(sys.stdin)], sys.stdout)
