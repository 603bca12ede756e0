"""What is measured on a machine and what is not: one check a source, each with what to do about it."""
