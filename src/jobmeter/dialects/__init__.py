"""Vendors' APIs: one folder each, pure translation."""
