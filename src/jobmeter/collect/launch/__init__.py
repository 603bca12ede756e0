"""``jobmeter run``: a command as a job."""
