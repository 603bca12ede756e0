"""Log shippers: they send log lines of resource groups to external sinks. See docs/how-to/ship-logs.md."""
