"""Usage of processes, including those that have ended."""
