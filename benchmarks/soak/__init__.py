"""A fleet of simulated agents, for as long as is wanted, and people who look at it meanwhile."""
