"""One file a subject; ``OPERATIONS`` lists them all."""

from jobmeter.dialects.pai_llm_trace.operations import token, traces

OPERATIONS = (*token.OPERATIONS, *traces.OPERATIONS)
