"""Other people's APIs: one folder each, pure translation."""
