"""The mark that ties a question to the type of its answer, so that whoever asks gets a typed result."""

from typing import Generic, TypeVar

R_co = TypeVar("R_co", covariant=True)


class Asks(Generic[R_co]):
    """A question whose answer is an ``R_co``. A question is data: who answers it is not its business."""

    __slots__ = ()
