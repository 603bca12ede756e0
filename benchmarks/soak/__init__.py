"""Soak test: a fleet of simulated agents writes for a chosen time, while readers send live queries."""
