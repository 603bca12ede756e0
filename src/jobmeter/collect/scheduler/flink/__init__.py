"""A cluster of Flink, read through the REST interface of its job manager."""
