"""Jobs for programs and notebooks: ``jobmeter.Client``."""
