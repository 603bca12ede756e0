"""Precision and recall of the diagnosis on jobs, real and generated, whose fault is known."""
