"""Messages by which a running program reports its numbers to an agent or a run on the same machine."""
