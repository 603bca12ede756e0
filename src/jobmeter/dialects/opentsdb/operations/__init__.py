"""The operations: every file of this folder is read."""
