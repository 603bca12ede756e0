"""Small, real programs to try Jobmeter on: each runs as ``python -m jobmeter.examples.NAME``."""
