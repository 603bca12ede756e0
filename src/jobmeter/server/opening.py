"""Open the telemetry engine on a thread while the rest of a start continues."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from jobmeter.store.base import Store


class Opening:
    """Engine that opens in the background, from construction on."""

    def __init__(self, open_store: Callable[[], Store]) -> None:
        aside = ThreadPoolExecutor(1, "jobmeter-open")
        self._future = aside.submit(open_store)
        self._handed_over = False
        aside.shutdown(wait=False)

    def wait(self) -> Store:
        """Wait for the open engine; the caller closes it. Raises the error of opening it."""
        engine = self._future.result()
        self._handed_over = True
        return engine

    def close(self) -> None:
        """Close the engine unless ``wait`` handed it over: for a start that fails."""
        if not self._handed_over:
            with suppress(Exception):  # the error that ended the start is reported, not this one
                self.wait().close()
