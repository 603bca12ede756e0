"""The rules: one a file, as ``RULE``; every file of the folder is loaded."""
