"""Every failure that Jobmeter raises on purpose.

The set of kinds is closed: an edge (the native API, a dialect, the command line) maps each kind once to its own
code, body and status. Nothing here knows HTTP. A failure that is none of these is a bug, and an edge shows it as
its own "internal error" and nothing else.
"""


class JobmeterError(Exception):
    """The root. ``message`` is one sentence for the caller; it never holds a secret."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class InvalidRequestError(JobmeterError):
    """The caller sent something that cannot be meant.

    ``field`` is the name of the part that is wrong, in the words of whoever raised it (a dialect translates a core
    name such as ``step`` into its own, ``TimeStep``).
    """

    def __init__(self, message: str, field: str = "") -> None:
        super().__init__(message)
        self.field = field


class LimitExceededError(InvalidRequestError):
    """What was asked or sent is well formed but larger than a limit; the message names the limit and its value."""


class UnauthenticatedError(JobmeterError):
    """No credential, or one that does not hold. ``reason`` says which, for the dialect's own code.

    Reasons: ``missing``, ``unknown-key``, ``bad-signature``, ``incomplete-signature``, ``stale``, ``replayed``,
    ``revoked``, ``expired``, ``malformed``, ``cross-origin``.
    """

    def __init__(self, message: str, reason: str = "missing") -> None:
        super().__init__(message)
        self.reason = reason


class ForbiddenError(JobmeterError):
    """The credential holds, but does not allow this."""


class NotFoundError(JobmeterError):
    """There is no such thing, or none that the caller may know of.

    ``kind`` is ``job``, ``node``, ``key``, ``path``, ...
    """

    def __init__(self, message: str, kind: str = "", name: str = "") -> None:
        super().__init__(message)
        self.kind = kind
        self.name = name


class ConflictError(JobmeterError):
    """The thing exists already, or is not in the state that the request needs."""


class ThrottledError(JobmeterError):
    """Too much at once. Nothing was stored; the caller may try again after ``retry_after_ms``."""

    def __init__(self, message: str, retry_after_ms: int) -> None:
        super().__init__(message)
        self.retry_after_ms = retry_after_ms


class UnavailableError(JobmeterError):
    """The store or the registry cannot work now (full or read-only disk, lost connection). Nothing was acknowledged.

    ``retry_after_ms`` is when to try again, None where nobody knows.
    """

    def __init__(self, message: str, retry_after_ms: int | None = None) -> None:
        super().__init__(message)
        self.retry_after_ms = retry_after_ms


class DamagedDataError(JobmeterError):
    """What is stored cannot be read: a file of the store is damaged. To try again does not help.

    ``message`` names the damaged part and no path; the server's log has the path and what to do.
    """


class QueryTimeoutError(JobmeterError):
    """The question took longer than its time budget and was stopped."""


class ConfigurationError(JobmeterError):
    """A setting, a file or an extra that the program needs is missing or wrong; the message says how to mend it."""


class LongQuestionError(Exception):
    """A question that began as a short one reads more than those may: it is asked again when a long one may be.

    No failure; see ``jobmeter.server.admission``.
    """
