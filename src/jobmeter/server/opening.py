"""Opening the telemetry engine on a thread, while the rest of a start goes on."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from jobmeter.store.base import Store


class Opening:
    """An engine that is being opened, from construction on."""

    def __init__(self, open_store: Callable[[], Store]) -> None:
        aside = ThreadPoolExecutor(1, "jobmeter-open")
        self._future = aside.submit(open_store)
        self._handed_over = False
        aside.shutdown(wait=False)

    def store(self) -> Store:
        """The engine, once it is open; the caller closes it. Raises what opening it raised."""
        store = self._future.result()
        self._handed_over = True
        return store

    def close(self) -> None:
        """Close the engine, unless ``store`` gave it to somebody: for a start that ends early."""
        if not self._handed_over:
            with suppress(Exception):  # what ended the start is reported, not this
                self.store().close()
