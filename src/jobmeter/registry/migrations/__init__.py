"""The registry's migrations, run by ``jobmeter.registry.migrate``."""
