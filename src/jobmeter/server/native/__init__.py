"""Jobmeter's own HTTP API, below ``/api/jobmeter/v1``."""
