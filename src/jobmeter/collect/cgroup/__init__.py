"""Control groups, version 1 and 2: where a process is, and what its group used."""
