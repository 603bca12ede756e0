"""The operations, one file a subject."""

from jobmeter.dialects.mlflow.operations import experiments, logging, runs, search

OPERATIONS = (*experiments.OPERATIONS, *runs.OPERATIONS, *logging.OPERATIONS, *search.OPERATIONS)
"""All operations."""
