"""Checks of a node on request: each reads, none changes anything."""
