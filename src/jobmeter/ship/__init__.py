"""Log shippers: lines of resource groups on their way to sinks of others. See docs/how-to/ship-logs.md."""
