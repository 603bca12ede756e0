"""Checks of the sources of measurements on a machine, with advice."""
