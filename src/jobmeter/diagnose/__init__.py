"""Rules that explain a job: from stored samples, log lines, events and records to findings with evidence."""
