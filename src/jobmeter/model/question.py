"""Base of questions (queries and commands), typed by their result."""

from typing import Generic, TypeVar

R_co = TypeVar("R_co", covariant=True)


class Question(Generic[R_co]):
    """Description of a query or command, with a result of type ``R_co``; the server executes it."""

    __slots__ = ()
