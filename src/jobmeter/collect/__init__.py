"""The agent: collectors, discovery of jobs, spool and delivery."""
