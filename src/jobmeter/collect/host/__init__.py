"""Metrics of the whole node: one module per concern."""
