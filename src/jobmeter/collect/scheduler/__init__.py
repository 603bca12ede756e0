"""What a cluster's scheduler knows of its jobs, asked once for the whole cluster."""
