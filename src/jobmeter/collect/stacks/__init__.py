"""Evidence about the ranks of a job that stands still, on request: it reads, and never stops a process."""
