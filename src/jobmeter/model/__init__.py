"""Vocabulary: metrics, series, jobs, time.

Standard library and msgspec only, no I/O (``model.batch`` needs NumPy).
"""
