"""Queries for measurements, and their evaluation."""
