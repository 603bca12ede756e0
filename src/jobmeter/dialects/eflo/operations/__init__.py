"""One file a subject; ``OPERATIONS`` lists them all."""

from jobmeter.dialects.eflo.operations import diagnostics, syslogs

OPERATIONS = (*diagnostics.OPERATIONS, *syslogs.OPERATIONS)
