"""What well-known Prometheus exporters measure, in the catalogue's names and units: one table an exporter."""

from collections.abc import Mapping, Sequence

from jobmeter.ingest.exporters import cadvisor, dcgm, flink, kube, node
from jobmeter.ingest.exporters.rule import Rule

RULES: Mapping[str, Sequence[Rule]] = {**node.RULES, **cadvisor.RULES, **dcgm.RULES, **kube.RULES, **flink.RULES}
"""By the name of the metric; the first rule that fits a series is its."""

__all__ = ["RULES", "Rule"]
