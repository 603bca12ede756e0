"""Batches of calls: threads that call at the same time share one round trip to the database."""

import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import msgspec

A = TypeVar("A")
R = TypeVar("R")
MOST = 1_000
"""Most calls in a batch."""


class _BatchedCall(msgspec.Struct, Generic[A, R], eq=False):
    argument: A
    result: R | None = None
    error: BaseException | None = None
    is_over: bool = False


class Batched(Generic[A, R]):
    """Function whose concurrent calls run as one call of ``work`` with all arguments, in the order of their arrival.

    ``work`` starts after every call of its batch, and returns a result for each argument. Thread-safe.
    """

    def __init__(self, work: Callable[[Sequence[A]], Sequence[R]]) -> None:
        self._work = work
        self._adding, self._working = threading.Lock(), threading.Lock()
        self._waiting: list[_BatchedCall[A, R]] = []

    def __call__(self, argument: A) -> R:
        """Return the result for one argument. Raises the error of its batch."""
        call = _BatchedCall[A, R](argument)
        with self._adding:
            self._waiting.append(call)
        with self._working:
            while not call.is_over:
                self._run()
        if call.error is not None:
            raise call.error
        return call.result  # type: ignore[return-value]  # None only where R has None

    @property
    def waiting(self) -> int:
        """Number of calls that wait for the next batch."""
        return len(self._waiting)

    def _run(self) -> None:
        with self._adding:
            batch, self._waiting = self._waiting[:MOST], self._waiting[MOST:]
        try:
            results = self._work([one.argument for one in batch])
            for one, result in zip(batch, results, strict=True):
                one.result = result
        except BaseException as error:  # noqa: BLE001 - each call of the batch raises it
            for one in batch:
                one.error = error
        for one in batch:
            one.is_over = True
