"""Energy of the node by source, and its division among jobs."""
