"""Processes: what each used, and what those that ended had used."""
