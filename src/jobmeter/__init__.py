"""Jobmeter measures jobs and serves what it measured.

``jobmeter.Client`` and ``jobmeter.AsyncClient`` are for programs and notebooks; ``jobmeter.log``, ``meta``, ``span``
and ``event`` report the numbers of a running program. Each is loaded at its first use.
"""

from importlib import import_module

__version__ = "0.1.0"

_LATE = {
    "Client": "jobmeter.program.client",
    "AsyncClient": "jobmeter.program.asynchronous",
    **dict.fromkeys(("log", "meta", "span", "event", "flush"), "jobmeter.program.log"),
}
"""Module of each attribute."""
_MODULES = ("hf", "lightning", "tensorboard")
"""Modules of the package ``program`` that are attributes."""


def __getattr__(name: str) -> object:
    if name not in _LATE and name not in _MODULES:
        raise AttributeError(f"module 'jobmeter' has no attribute {name!r}")
    value: object = import_module(f"jobmeter.program.{name}") if name in _MODULES else None
    value = value or getattr(import_module(_LATE[name]), name)
    globals()[name] = value
    return value
