"""NVIDIA GPUs through NVML."""
