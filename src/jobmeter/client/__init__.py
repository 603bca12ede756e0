"""The HTTP client of Jobmeter's own API: used by the agent and by the command line."""
