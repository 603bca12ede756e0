"""What the kubelet of this node says: which devices it gave to which container."""
