"""Kubernetes cluster: its API server is watched once, and its pods are replicas of the jobs that own them."""
