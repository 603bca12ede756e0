"""Flink cluster, read through the REST interface of its job manager."""
