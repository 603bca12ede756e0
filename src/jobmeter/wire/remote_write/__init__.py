"""Prometheus remote write 1.0 and 2.0: the bytes of a request to columns."""
