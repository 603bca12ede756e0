"""Destinations of shipped lines: one module per kind, registered in ``jobmeter.ship.registry``."""
