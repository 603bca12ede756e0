"""Slurm: its controller knows the jobs of now and of the last minutes, its database those of ever."""
