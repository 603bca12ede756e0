"""Which job a process works for, and which devices a job has."""
