"""Rules that explain a job: stored samples, log lines, events and records in, findings with evidence out."""
