"""Comparison of Jobmeter with its peers in one run: the same samples, the same queries, the same client."""
