"""Slurm: its controller has current and recent jobs, its accounting database all of them."""
