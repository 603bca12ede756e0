"""What Jobmeter's own agents speak: docs/reference/wire-format.md."""
