"""The agent: collectors, job discovery, spool and delivery."""
