"""Answers of the query API: https://prometheus.io/docs/prometheus/latest/querying/api/."""

from collections.abc import Iterable, Sequence
from operator import gt
from typing import Any

import msgspec
import numpy as np

from jobmeter.dialects.base import Answer
from jobmeter.kernel.points import encode as encode_points
from jobmeter.model.batch import Float64s, Int64s
from jobmeter.promql.evaluate import EvaluatedQuery as Evaluated
from jobmeter.promql.evaluation import EXPIRED
from jobmeter.promql.labels import Labels
from jobmeter.promql.numbers import format_number
from jobmeter.promql.values import Scalar, String, Vector
from jobmeter.promql.windows import WindowSamples

TRUNCATED = "results truncated due to limit"
"""The warning in an answer that leaves out series."""


def make_success(data: object, *, warnings: Sequence[str] = (), infos: Sequence[str] = ()) -> Answer:
    """Return an answer with data."""
    body: dict[str, Any] = {"status": "success", "data": data}
    if warnings:
        body["warnings"] = list(warnings)
    if infos:
        body["infos"] = list(infos)
    return Answer(200, msgspec.json.encode(body))


def answer_instant(found: Evaluated, time_ms: int, limit: int) -> Answer:
    """Return the value of a query at one time."""
    value = found.value
    time = time_ms / 1000
    if isinstance(value, Scalar):
        data: dict[str, Any] = {"resultType": "scalar", "result": [time, format_number(float(value.values[0]))]}
    elif isinstance(value, String):
        data = {"resultType": "string", "result": [time, value.value]}
    else:
        rows = zip(value.labels, value.values[:, 0].tolist(), strict=True)
        data = {
            "resultType": "vector",
            "result": [{"metric": dict(labels), "value": [time, format_number(one)]} for labels, one in rows],
        }
    return _limit_rows(data, limit, found.warnings, found.infos)


def answer_range(found: Evaluated, times: Int64s, limit: int) -> Answer:
    """Return the values of a query over a range."""
    value = found.value
    if isinstance(value, Scalar):
        rows = _rows([()], np.array([len(times)]), times, value.values)
    elif isinstance(value, Vector):
        rows = _build_range_rows(value, times)
    else:
        rows = []
    return _limit_rows({"resultType": "matrix", "result": rows}, limit, found.warnings, found.infos)


def _build_range_rows(vector: Vector, times: Int64s) -> list[dict[str, Any]]:
    """Return the rows of a vector, sorted by their labels."""
    labels, values, present = vector.labels, vector.values, vector.present
    if any(map(gt, labels, labels[1:])):
        order = sorted(range(len(labels)), key=labels.__getitem__)
        labels, values, present = [labels[row] for row in order], values[order], present[order]
    of_points = np.concatenate([times] * len(labels)) if labels else times[:0]
    if present.all():
        ends = np.arange(1, len(labels) + 1) * len(times)
        return _rows(labels, ends, of_points, values.ravel())
    chosen = present.ravel()
    return _rows(labels, np.cumsum(present.sum(axis=1)), of_points[chosen], values.ravel()[chosen])


def make_samples(found: WindowSamples, limit: int) -> Answer:
    """Return the samples of a range."""
    rows = _rows(found.labels, found.starts[1:], found.times, found.values)
    infos = [EXPIRED] if found.expired else []
    return _limit_rows({"resultType": "matrix", "result": rows}, limit, infos=infos)


def _rows(labels: Sequence[Labels], ends: Int64s, times: Int64s, values: Float64s) -> list[dict[str, Any]]:
    """Return rows; ``ends`` int64[rows] is the end of each row in ``times`` and ``values``."""
    texts = encode_points(ends, times, values, as_text=True)
    return [{"metric": dict(own), "values": msgspec.Raw(text)} for own, text in zip(labels, texts, strict=True)]


def _limit_rows(data: dict[str, Any], limit: int, warnings: Sequence[str] = (), infos: Sequence[str] = ()) -> Answer:
    rows = data["result"]
    warnings = [f"PromQL warning: {one}" for one in warnings]
    infos = [f"PromQL info: {one}" for one in infos]
    if limit and data["resultType"] in {"vector", "matrix"} and len(rows) > limit:
        data["result"] = rows[:limit]
        warnings.append(TRUNCATED)
    return make_success(data, warnings=warnings, infos=infos)


def make_names(found: Iterable[str], limit: int) -> Answer:
    """Return the names, sorted and distinct; at most ``limit`` names if it is not 0."""
    ordered = sorted(set(found))
    if limit and len(ordered) > limit:
        return make_success(ordered[:limit], warnings=[TRUNCATED])
    return make_success(ordered)
