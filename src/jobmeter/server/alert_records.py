"""Stores the series of recording rules as series of remote write."""

import logging
import math
from collections.abc import Sequence

import numpy as np

from jobmeter.access.principal import Principal, Role
from jobmeter.alerts.rules import AlertRule
from jobmeter.errors import InvalidRequestError
from jobmeter.ingest.exporters.resolve import resolve
from jobmeter.ingest.pipeline import IngestPipeline
from jobmeter.model.batch import SampleBatch
from jobmeter.model.series import DEFAULT_PROJECT, Series
from jobmeter.promql.labels import Labels, drop_name, value_of
from jobmeter.promql.nodes import NAME
from jobmeter.server.alerting import Recorder

_log = logging.getLogger("jobmeter.server")
_RULES = Principal(id="rules", name="recording rules", role=Role.WRITER)


def recorder_of(pipeline: IngestPipeline) -> Recorder:
    """Return the function that stores the series of a recording rule, in the project that their labels name."""

    def record(rule: AlertRule, series: Sequence[tuple[Labels, float]], now_ms: int) -> None:
        found: dict[Series, float] = {}
        for labels, value in series:
            given = {**dict(drop_name(labels)), **{name: one.render({}, value) for name, one in rule.labels.items()}}
            pairs = [(NAME, rule.name), *((name, text) for name, text in sorted(given.items()) if text)]
            try:
                resolved = resolve(pairs, value_of(labels, "project") or DEFAULT_PROJECT)
            except InvalidRequestError as error:
                _log.warning("a series of the rule %s was not stored: %s", rule.id, error.message)
                continue
            if math.isfinite(value):
                found[resolved.series] = value * resolved.factor
        if found:
            times = np.full(len(found), now_ms, np.int64)
            values = np.array(list(found.values()), np.float64)
            pipeline.samples(SampleBatch(list(found), np.arange(len(found), dtype=np.uint32), times, values), _RULES)

    return record
