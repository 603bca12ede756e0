"""System logs of a node: the kernel's log, the journal, and files."""
