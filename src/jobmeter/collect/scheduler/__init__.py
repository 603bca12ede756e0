"""Jobs from a cluster's scheduler, read once for the whole cluster."""
