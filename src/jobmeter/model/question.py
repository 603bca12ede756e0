"""Base of questions (queries and commands), typed by their result."""

from typing import ClassVar, Generic, TypeVar

R_co = TypeVar("R_co", covariant=True)


class Question(Generic[R_co]):
    """Description of a query or command, with a result of type ``R_co``; the server executes it.

    A caller who sees whole projects may send each question. All other scopes are refused unless the type opens itself
    to them (``jobmeter.query.permitted.check_scope``). Questions and results can be encoded by msgspec.
    """

    __slots__ = ()

    by_resource: ClassVar[bool] = False
    """True if the answer leaves out all resources that the caller's policies do not allow."""
    of_job: ClassVar[bool] = False
    """True if the answer for a scope of one job contains nothing beyond that job."""
    whole_server: ClassVar[bool] = False
    """True if only a caller of every project may send it."""
