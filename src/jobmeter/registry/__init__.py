"""The relational database: jobs, replicas, allocations, nodes, projects and keys."""
