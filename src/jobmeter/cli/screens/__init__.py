"""Screens of ``jobmeter top``, made with Textual: only ``jobmeter.cli.top`` imports them, if it is installed."""
