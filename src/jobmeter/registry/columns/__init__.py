"""The fields by which listings filter and sort, as columns in memory: a million jobs are one array operation."""
