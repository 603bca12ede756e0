"""What the system of a node says: the kernel's log, the journal, and files."""
