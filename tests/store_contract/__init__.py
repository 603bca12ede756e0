"""Contract tests of the store, which each engine's tests inherit, and their helpers."""
