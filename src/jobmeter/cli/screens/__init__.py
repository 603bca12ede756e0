"""The screens of ``jobmeter top``, made with Textual: only ``jobmeter.cli.top`` imports them, where it is installed."""
