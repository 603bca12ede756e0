"""Contract tests for dialects and collectors, which plug-in packages inherit too."""
