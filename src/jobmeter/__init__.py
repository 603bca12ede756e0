"""Jobmeter measures jobs and serves what it measured.

``jobmeter.Client`` and ``jobmeter.AsyncClient`` are for programs and notebooks; they raise the errors of
``jobmeter.errors``. ``jobmeter.log``, ``meta``, ``span`` and ``event`` report the numbers of a running program. Each
name loads its module on first use, so that the import is quick.
"""

from importlib import import_module

__version__ = "0.1.0"

_ERRORS = (
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
)
_LATE = {
    "Client": "jobmeter.program.client",
    "AsyncClient": "jobmeter.program.asynchronous",
    **dict.fromkeys(("log", "meta", "span", "event", "flush"), "jobmeter.program.log"),
    **dict.fromkeys(_ERRORS, "jobmeter.errors"),
}
"""Modules of the public names."""
_MODULES = ("hf", "lightning", "tensorboard")
"""Modules of the package ``program`` that are attributes."""


def __getattr__(name: str) -> object:
    if name in _MODULES:
        value: object = import_module(f"jobmeter.program.{name}")
    elif name in _LATE:
        value = getattr(import_module(_LATE[name]), name)
    else:
        raise AttributeError(f"module 'jobmeter' has no attribute {name!r}; it has {', '.join((*_LATE, *_MODULES))}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return ["__version__", *_LATE, *_MODULES]
