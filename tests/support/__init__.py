"""Shared test support: real databases, schedulers and browsers, fakes of other software, and waiting functions."""
