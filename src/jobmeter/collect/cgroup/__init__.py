"""Control groups, version 1 and 2: the groups of a process, and their usage."""
