"""Contract of the store as tests, which each engine inherits, and what the tests need."""
