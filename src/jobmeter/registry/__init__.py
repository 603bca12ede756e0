"""The relational side: jobs, replicas, allocations, nodes, projects and keys."""
