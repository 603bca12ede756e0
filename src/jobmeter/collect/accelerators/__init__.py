"""Accelerators of a node: their vendors, and the collector that all vendors share."""
