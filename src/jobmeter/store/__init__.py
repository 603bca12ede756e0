"""The telemetry store: samples, their series, and their roll-ups."""
