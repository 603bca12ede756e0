"""Program that logs with MLflow and knows nothing of Jobmeter. It prints what it reads back."""

import json
import math
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

import mlflow
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient

PAUSE = threading.Event()
"""Event that is never set. A timed wait on it stands for training, or waits for a thread of MLflow."""
NAMES = {"val/top 1": 0.5, "é:x": -2.0, "a.b-c_d": 3.0, "step": 4.0}


def plain(run):
    return {"info": dict(run.info), "params": run.data.params, "tags": run.data.tags, "metrics": run.data.metrics}


def refused(work):
    try:
        work()
    except MlflowException as error:
        return [error.error_code, error.message]
    return None


def everything():
    client = MlflowClient()
    experiment = mlflow.set_experiment("vision/été 1").experiment_id
    with mlflow.start_run(run_name="first", log_system_metrics=True) as run:
        mlflow.log_params({"lr": 0.1, "net/depth": 50})
        for step in range(1, 21):
            mlflow.log_metric("loss", 1 / step, step=step)
        mlflow.log_metrics(NAMES, step=20)
        for at, value in enumerate((math.nan, math.inf, -math.inf)):
            mlflow.log_metric("odd", value, step=at)
        mlflow.set_tag("team", "vision")
        while not any(name.startswith("system/") for name in client.get_run(run.info.run_id).data.metrics):
            PAUSE.wait(0.2)
        with mlflow.start_run(run_name="inner", nested=True) as inner:
            mlflow.log_metric("loss", 7.0)
    client.update_run(run.info.run_id, name="renamed")
    found = client.get_run(run.info.run_id)
    names = [*NAMES, "loss", "odd"]
    histories = {key: client.get_metric_history(found.info.run_id, key) for key in names}
    pages = client.search_runs([experiment], max_results=1, order_by=["metrics.loss ASC"])
    rest = client.search_runs([experiment], max_results=1, order_by=["metrics.loss ASC"], page_token=pages.token)
    gone = client.create_run(experiment)
    client.delete_run(gone.info.run_id)
    return {
        "run": plain(found),
        "inner": inner.info.run_id,
        "experiment": dict(client.get_experiment(experiment)),
        "by_name": dict(client.get_experiment_by_name("vision/été 1")),
        "histories": {key: [[one.step, repr(one.value)] for one in values] for key, values in histories.items()},
        "pages": [one.info.run_name for page in (pages, rest) for one in page],
        "running": [one.info.run_id for one in client.search_runs([experiment], "status = 'RUNNING'")],
        "deleted": [one.info.run_id for one in client.search_runs([experiment], run_view_type=2)] == [gone.info.run_id],
        "refused": {
            "param": refused(lambda: client.log_param(found.info.run_id, "lr", "2")),
            "filter": refused(lambda: client.search_runs([experiment], "dataset.name = 'a'")),
            "run": refused(lambda: client.get_run("none")),
            "file": refused_file(found.info.run_id),
        },
    }


def refused_file(run):
    try:
        MlflowClient().log_text(run, "text", "a.txt")
    except Exception as error:  # noqa: BLE001 - the client raises what its library for requests does
        return str(error)
    return None


def steps(count):
    """Log steps as fast as the server accepts them. Print a line for each acknowledged step."""
    with mlflow.start_run(run_name="steps") as run:
        print(run.info.run_id, flush=True)
        for step in range(count):
            mlflow.log_metric("loss", step / 7, step=step)
            print(step, flush=True)
            PAUSE.wait(0.02)


def values(run):
    client = MlflowClient()
    found = client.get_metric_history(run, "loss")
    return {"status": client.get_run(run).info.status, "loss": [[one.step, one.value] for one in found]}


def outages(count):
    """Log nested runs, resumed runs and runs of a fork. Print a line for each step, and the runs at the end."""
    client = MlflowClient()
    with mlflow.start_run(run_name="outer", log_system_metrics=True) as run:
        mlflow.log_params({"lr": 0.1})
        for step in range(count):
            mlflow.log_metric("loss", step / 7, step=step)
            print(step, flush=True)
            PAUSE.wait(0.02)
        with mlflow.start_run(nested=True) as inner:
            mlflow.log_metrics({"loss": 1.0})
    with mlflow.start_run(run_id=run.info.run_id):
        mlflow.set_tag("again", "yes")
        mlflow.log_metric("loss", -1.0, step=count)
    child = os.fork()
    if not child:
        MlflowClient().log_metric(run.info.run_id, "forked", 2.0)
        os._exit(0)
    os.waitpid(child, 0)
    found = client.search_runs(["0"], "metrics.loss = -1.0")
    assert [one.info.run_id for one in found] == [run.info.run_id]
    assert len(client.get_metric_history(run.info.run_id, "loss")) == count + 1
    return [run.info.run_id, inner.info.run_id]


def joined():
    with mlflow.start_run(log_system_metrics=True) as run:
        for step in range(3):
            mlflow.log_metric("loss", step, step=step)
        mlflow.log_text("text", "a.txt")
    return run.info.run_id


VERBS: dict[str, Callable[..., Any]] = {
    "everything": everything,
    "steps": steps,
    "values": values,
    "joined": joined,
    "outages": outages,
}

if __name__ == "__main__":
    mlflow.set_system_metrics_sampling_interval(0.1)
    mlflow.set_system_metrics_samples_before_logging(1)
    verb, *words = sys.argv[1:]
    result = VERBS[verb](*(int(word) if word.isdigit() else word for word in words))
    if result is not None:
        print(json.dumps(result))
