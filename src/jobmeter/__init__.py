"""Jobmeter measures jobs and serves what it measured.

``jobmeter.Client`` and ``jobmeter.AsyncClient`` are for programs and notebooks. They raise the errors of
``jobmeter.errors``. Each name loads its module on first use, so that the import is quick.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_LATE = {"Client": "jobmeter.program.client", "AsyncClient": "jobmeter.program.asynchronous"} | dict.fromkeys(
    (
        "ConfigurationError",
        "ConflictError",
        "DamagedDataError",
        "ForbiddenError",
        "InvalidRequestError",
        "JobmeterError",
        "LimitExceededError",
        "NotFoundError",
        "QueryTimeoutError",
        "ThrottledError",
        "UnauthenticatedError",
        "UnavailableError",
    ),
    "jobmeter.errors",
)
"""Modules of the public names."""


def __getattr__(name: str) -> Any:  # noqa: ANN401 - what the module of that name holds, see __init__.pyi
    if name not in _LATE:
        raise AttributeError(f"module 'jobmeter' has no attribute {name!r}; it has {', '.join(_LATE)}")
    return getattr(import_module(_LATE[name]), name)


def __dir__() -> list[str]:
    return ["__version__", *_LATE]
