"""Evidence about the ranks of a job that stands still, on request. Collecting it stops no process."""
