"""Maps the metrics of well-known Prometheus exporters to the catalogue: one table an exporter."""

from jobmeter.ingest.exporters import cadvisor, dcgm, flink, kube, node, slurm
from jobmeter.ingest.rule import Rules

RULES: Rules = {**node.RULES, **cadvisor.RULES, **dcgm.RULES, **kube.RULES, **flink.RULES, **slurm.RULES}
