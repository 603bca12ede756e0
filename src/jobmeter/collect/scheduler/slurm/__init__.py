"""Slurm. The controller has current and recent jobs, the accounting database all of them."""
