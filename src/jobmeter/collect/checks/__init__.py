"""Read-only checks of a node on request."""
