"""The hot window: the newest raw samples of live series in memory, in front of an engine."""
