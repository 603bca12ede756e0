"""Numbers that programs report by themselves: received on this machine and attributed to jobs by process."""
