"""The ingest pipeline: validate, identify, store, acknowledge."""
