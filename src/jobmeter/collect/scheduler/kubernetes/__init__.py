"""Kubernetes cluster. Its API server is watched once, and its pods are replicas of the jobs that own them."""
