"""Checks of what can be measured on a machine: one for each source, with advice."""
