"""Flink as a kind of scheduler: the address of its job manager."""

from collections.abc import Mapping
from pathlib import Path

from jobmeter.collect.scheduler.base import Option, Scheduler, SchedulerKind
from jobmeter.collect.scheduler.flink.rest import FlinkRest
from jobmeter.collect.scheduler.flink.source import FlinkCluster
from jobmeter.errors import ConfigurationError


def _make(cluster: str, options: Mapping[str, str | None], state: Path | None) -> Scheduler:
    address = options.get("rest")
    if not address:
        raise ConfigurationError("--rest is missing: the address of the job manager, such as http://host:8081")
    return FlinkCluster(cluster, FlinkRest(address), state)


KIND = SchedulerKind(
    "Jobs of Flink and their metrics, from the REST interface of the job manager.",
    _make,
    (Option("rest", "URL", "The job manager: http(s)://[USER:PASSWORD@]HOST[:PORT][/PATH].", "FLINK_REST"),),
)
