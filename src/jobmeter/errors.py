"""Errors that Jobmeter raises on purpose.

The set of classes is closed. An edge (the native API, a dialect, the command line) maps each class once to its own
code, body and status. This module knows nothing of HTTP. Any other exception is a bug, and an edge shows it as
"internal error" without details.
"""


class JobmeterError(Exception):
    """Base class of all errors. ``message`` is one sentence for the caller; it never contains a secret."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message

    def _render_traceback_(self) -> list[str]:
        """Return the lines that IPython prints in place of a traceback."""
        return [f"{type(self).__name__}: {self.message}"]


class InvalidRequestError(JobmeterError):
    """Invalid request.

    ``field`` is the name of the wrong part as the raising module calls it. A dialect translates a core name such as
    ``step`` into its own, ``TimeStep``.
    """

    def __init__(self, message: str, field: str = "") -> None:
        super().__init__(message)
        self.field = field


class LimitExceededError(InvalidRequestError):
    """Valid request that exceeds a limit; the message names the limit and its value."""


class UnauthenticatedError(JobmeterError):
    """Missing or invalid credential. ``reason`` tells the cause, for the dialect's own code.

    Reasons: ``missing``, ``unknown-key``, ``bad-signature``, ``incomplete-signature``, ``stale``, ``replayed``,
    ``revoked``, ``expired``, ``malformed``, ``cross-origin``.
    """

    def __init__(self, message: str, reason: str = "missing") -> None:
        super().__init__(message)
        self.reason = reason


class ForbiddenError(JobmeterError):
    """Valid credential without permission for the call."""


class NotFoundError(JobmeterError):
    """Object that does not exist or that the caller may not see.

    ``kind`` is ``job``, ``node``, ``key``, ``path``, ...
    """

    def __init__(self, message: str, kind: str = "", name: str = "") -> None:
        super().__init__(message)
        self.kind = kind
        self.name = name


class ConflictError(JobmeterError):
    """Object that already exists, or is not in the state that the request needs."""


class ThrottledError(JobmeterError):
    """Too many requests. Nothing was stored; the caller may retry after ``retry_after_ms``."""

    def __init__(self, message: str, retry_after_ms: int) -> None:
        super().__init__(message)
        self.retry_after_ms = retry_after_ms


class UnavailableError(JobmeterError):
    """Store or registry that cannot work now (full or read-only disk, lost connection). Nothing was acknowledged.

    ``retry_after_ms`` is the time until a retry, None if unknown. ``is_partial``: other parts of the store work, so
    another call may succeed.
    """

    def __init__(self, message: str, retry_after_ms: int | None = None, *, is_partial: bool = False) -> None:
        super().__init__(message)
        self.retry_after_ms = retry_after_ms
        self.is_partial = is_partial


class DamagedDataError(JobmeterError):
    """Damaged stored data that cannot be read. A retry does not help.

    ``message`` names the damaged part without its path; the server's log has the path and the remedy.
    """


class QueryTimeoutError(JobmeterError):
    """Query that exceeded its time budget and was stopped."""


class ConfigurationError(JobmeterError):
    """Missing or wrong setting, file or extra; the message tells how to fix it."""


class LongQuestionError(Exception):
    """Signal that a short question reads more than allowed: it runs again as a long question.

    Not a failure; see ``jobmeter.server.admission``.
    """
