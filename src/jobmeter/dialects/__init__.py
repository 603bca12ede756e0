"""Vendors' APIs, a folder for each: pure translation."""
