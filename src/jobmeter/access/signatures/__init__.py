"""Credential schemes: pure functions over a raw call. One file each; ``SCHEMES`` below names them all."""

from jobmeter.access.signatures.base import Claim, Scheme

__all__ = ["Claim", "Scheme"]
