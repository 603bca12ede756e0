"""One file a subject; ``OPERATIONS`` lists them all."""

from jobmeter.dialects.pai_dlc.operations import job_metrics, tokens

OPERATIONS = (*job_metrics.OPERATIONS, *tokens.OPERATIONS)
