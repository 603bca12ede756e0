"""Jobmeter beside its peers: the same samples, the same questions, the same client, one run."""
