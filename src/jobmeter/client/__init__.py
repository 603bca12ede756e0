"""HTTP client of Jobmeter's own API, used by the agent and the command line."""
