"""Kills and freezes every part of an installation during ingestion and queries: ``make storm``.

``topology`` starts the servers, ``traffic`` sends samples, ``questions`` asks, ``faults`` kills and freezes, and
``verification`` compares everything that was stored with everything that was acknowledged.
"""
