"""Numbers that programs report: received on this machine and attributed to jobs by process."""
