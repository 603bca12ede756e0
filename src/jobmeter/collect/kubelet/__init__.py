"""Allocations of devices, and storage of pods, from the kubelet of this node."""
