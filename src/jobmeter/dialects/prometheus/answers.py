"""Answers of the query API: https://prometheus.io/docs/prometheus/latest/querying/api/."""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from jobmeter.dialects.base import Answer
from jobmeter.model.batch import Float64s, Int64s
from jobmeter.promql.evaluate import EvaluatedQuery as Evaluated
from jobmeter.promql.evaluation import EXPIRED
from jobmeter.promql.labels import Labels
from jobmeter.promql.numbers import format_number
from jobmeter.promql.values import Scalar, String, Vector
from jobmeter.promql.windows import WindowSamples

TRUNCATED = "results truncated due to limit"
"""The warning of an answer that left out series."""


def success(data: object, *, warnings: Sequence[str] = (), infos: Sequence[str] = ()) -> Answer:
    """Return an answer with data."""
    body: dict[str, Any] = {"status": "success", "data": data}
    if warnings:
        body["warnings"] = list(warnings)
    if infos:
        body["infos"] = list(infos)
    return Answer(200, msgspec.json.encode(body))


def instant(found: Evaluated, time_ms: int, limit: int) -> Answer:
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
    return _limited(data, limit, found.warnings, found.infos)


def ranged(found: Evaluated, times: Int64s, limit: int) -> Answer:
    """Return the values of a query over a range."""
    value = found.value
    if isinstance(value, Scalar):
        rows = [_row((), (times / 1000).tolist(), value.values)]
    elif isinstance(value, Vector):
        parts = zip(value.labels, value.values, value.present, strict=True)
        order = sorted(parts, key=lambda part: part[0])
        if value.present.all():
            seconds = (times / 1000).tolist()
            rows = [_row(labels, seconds, values) for labels, values, _ in order]
        else:
            rows = [
                _row(labels, (times[present] / 1000).tolist(), values[present]) for labels, values, present in order
            ]
    else:
        rows = []
    return _limited({"resultType": "matrix", "result": rows}, limit, found.warnings, found.infos)


def samples(found: WindowSamples, limit: int) -> Answer:
    """Return the samples of a range."""
    bounds = found.starts.tolist()
    rows = [
        _row(labels, (found.times[start:end] / 1000).tolist(), found.values[start:end])
        for labels, start, end in zip(found.labels, bounds, bounds[1:], strict=False)
    ]
    infos = [EXPIRED] if found.expired else []
    return _limited({"resultType": "matrix", "result": rows}, limit, infos=infos)


def _row(labels: Labels, seconds: list[float], values: Float64s) -> dict[str, Any]:
    pairs = zip(seconds, map(format_number, values.tolist()), strict=True)
    return {"metric": dict(labels), "values": list(pairs)}


def _limited(data: dict[str, Any], limit: int, warnings: Sequence[str] = (), infos: Sequence[str] = ()) -> Answer:
    rows = data["result"]
    warnings = [f"PromQL warning: {one}" for one in warnings]
    infos = [f"PromQL info: {one}" for one in infos]
    if limit and data["resultType"] in {"vector", "matrix"} and len(rows) > limit:
        data["result"] = rows[:limit]
        warnings.append(TRUNCATED)
    return success(data, warnings=warnings, infos=infos)


def names(found: Iterable[str], limit: int) -> Answer:
    """Return names in order, at most ``limit`` where it is not 0."""
    ordered = sorted(set(found))
    if limit and len(ordered) > limit:
        return success(ordered[:limit], warnings=[TRUNCATED])
    return success(ordered)
