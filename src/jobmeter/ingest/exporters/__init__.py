"""What well-known Prometheus exporters measure, in the catalogue's names and units: one table an exporter."""

from jobmeter.ingest.exporters import cadvisor, dcgm, flink, kube, node
from jobmeter.ingest.rule import Rules

RULES: Rules = {**node.RULES, **cadvisor.RULES, **dcgm.RULES, **kube.RULES, **flink.RULES}
