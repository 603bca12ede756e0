"""Jobmeter measures jobs and serves what it measured.

``jobmeter.Client`` and ``jobmeter.AsyncClient`` are for programs and notebooks, loaded when they are asked for.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_LATE = {"Client": "jobmeter.program.client", "AsyncClient": "jobmeter.program.asynchronous"}


def __getattr__(name: str) -> Any:  # noqa: ANN401 - what the module of that name holds, see __init__.pyi
    if name not in _LATE:
        raise AttributeError(f"module 'jobmeter' has no attribute {name!r}")
    return getattr(import_module(_LATE[name]), name)
