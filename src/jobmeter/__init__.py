"""Jobmeter measures jobs and serves what it measured."""

__version__ = "0.1.0"
