"""Find the job of a process, and the devices of a job."""
