"""The node as a whole: one file a concern."""
