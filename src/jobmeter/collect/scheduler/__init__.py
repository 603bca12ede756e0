"""Jobs from the scheduler of a cluster, read once for the whole cluster."""
