"""Device allocations from the kubelet of this node."""
