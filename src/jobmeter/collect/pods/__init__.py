"""Jobs of a node's pods, by the records of the cluster's watcher."""
