"""Worker processes: they speak HTTP, and the storage process answers (docs/decisions/0050-processes.md)."""
