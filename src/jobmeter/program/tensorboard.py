"""Reports the scalars that a program writes for TensorBoard: ``jobmeter.tensorboard.follow("runs/")``."""

import threading
import time
from contextlib import suppress
from pathlib import Path

from jobmeter.program import log as reports
from jobmeter.wire.tfevents import EventFileReader

_SECONDS = 2.0
_MOST_FILES = 256
_MOST_BYTES = 2**20
_NAME = "*tfevents*"


class Follower:
    """Reads the files below a folder. Values that were written before the follower began are not reported."""

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)
        self.began = time.clock_gettime(time.CLOCK_REALTIME)
        self._files: dict[Path, tuple[EventFileReader, int]] = {}

    def turn(self) -> None:
        """Read what was appended, and report its scalars with their own times and steps."""
        for path in sorted(self._folder.rglob(_NAME)):
            if path not in self._files:
                if len(self._files) >= _MOST_FILES:
                    break
                self._files[path] = EventFileReader(), 0
            reader, at = self._files[path]
            with path.open("rb") as file:
                file.seek(at)
                data = file.read(_MOST_BYTES)
            self._files[path] = reader, at + len(data)
            for event in reader.feed(data):
                if event.wall_time >= self.began:
                    reports.log_at(event.wall_time, event.values, event.step)

    def run(self) -> None:
        """Take turns until the program ends."""
        while True:
            with suppress(OSError):  # the folder is not there yet, or a file is gone
                self.turn()
            threading.Event().wait(_SECONDS)


def follow(folder: str | Path) -> None:
    """Report the scalars that are written to event files below a folder from now on. Returns immediately."""
    with suppress(Exception):  # a report must never stop the program
        follower = Follower(folder)
        threading.Thread(target=follower.run, name="jobmeter-tensorboard", daemon=True).start()
