"""What listings filter and sort by, of every job, as columns in memory: a million jobs are one array operation."""
