"""Calls that may block, each in a thread, with a time limit for the caller."""

from collections.abc import Callable
from queue import SimpleQueue
from threading import Event, Thread
from typing import Generic, TypeVar, cast

T = TypeVar("T")


class CallThread(Generic[T]):
    """Daemon thread that runs one call at a time, so that a call that blocks does not block its caller.

    For one calling thread at a time. The first call starts the thread, also after ``close``.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls: SimpleQueue[Callable[[], T] | None] | None = None
        self._done = Event()
        self._done.set()
        self._value: T | None = None
        self._error: BaseException | None = None

    @property
    def busy(self) -> bool:
        """True while a call has not returned."""
        return not self._done.is_set()

    def begin(self, call: Callable[[], T]) -> bool:
        """Start a call. False if the previous call has not returned: then nothing is started."""
        if self.busy:
            return False
        if self._calls is None:
            self._calls = SimpleQueue()
            Thread(target=self._run_calls, args=(self._calls,), name=self._name, daemon=True).start()
        self._value = self._error = None
        self._done.clear()
        self._calls.put(call)
        return True

    def wait(self, seconds: float) -> bool:
        """Wait at most ``seconds`` for the call to return. True if it has."""
        return self._done.wait(max(seconds, 0.0))

    def get_result(self) -> T:
        """Return the result of the last call once it is over. Raises the error of the call."""
        if self._error is not None:
            raise self._error
        return cast("T", self._value)

    def close(self) -> None:
        """End the thread once its call has returned."""
        if self._calls is not None:
            self._calls.put(None)
            self._calls = None

    def _run_calls(self, calls: "SimpleQueue[Callable[[], T] | None]") -> None:
        while (call := calls.get()) is not None:
            try:
                self._value = call()
            except BaseException as error:  # noqa: BLE001 - the caller gets whatever it was
                self._error = error
            self._done.set()
