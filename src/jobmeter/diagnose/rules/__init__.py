"""The rules: each file holds one, as ``RULE``; whatever lies here takes part."""
