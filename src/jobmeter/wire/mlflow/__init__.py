"""MLflow's tracking API for runs: names, runs, values and searches, as pure functions for servers and relays."""
