"""The wire format of Jobmeter's own agents: docs/reference/wire-format.md."""
