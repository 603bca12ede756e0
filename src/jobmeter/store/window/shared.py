"""Reads the window of another process, without a lock and without a copy."""

import os
import select
from collections.abc import Callable
from time import monotonic
from typing import Self, TypeVar

from jobmeter.model.batch import SeriesKeys
from jobmeter.model.series_table import SeriesTable
from jobmeter.model.time import SECOND, read_clock
from jobmeter.store.window.arena import Arena, HeaderField
from jobmeter.store.window.pages import Pages, SeriesRows, count_pages, count_rows
from jobmeter.store.window.read import FoundRows, WindowReads
from jobmeter.store.window.revisions import Revisions

T = TypeVar("T")

_FEWEST_ATTEMPTS = 3
_SETTLED_SECONDS = 0.005
"""Time for which a read waits for writes to end: most take microseconds, a write of late samples a millisecond."""


class SharedWindow(WindowReads):
    """The window of another process, which answers as ``Window`` does.

    Each row belongs to a group with a mark that the writer moves around every change. An answer counts only if the
    marks of its rows stayed the same; otherwise it is read again. The answer is None if a series is not in the window.
    The answer is None too if writes do not end within ``_SETTLED_SECONDS``, for example after the death of the writer
    during a write. ``revisions`` are the numbers that the writer raises: read one before the data that is cached under
    it. ``owner`` is a descriptor that becomes readable when the writer has ended. Safe for several threads, but for
    ``ended``.
    """

    def __init__(self, arena: Arena, owner: int) -> None:
        self._arena = arena
        self.owner = owner
        self._end = select.poll()  # select, in contrast, takes only small descriptors
        self._end.register(owner, select.POLLIN)
        self.revisions = Revisions(arena.take)
        bound = int(arena.header[HeaderField.BOUND])
        pages = Pages(count_pages(bound), arena.take)
        super().__init__(pages, SeriesRows(SeriesTable(count_rows(bound), arena.take)))

    @classmethod
    def open(cls, descriptor: int) -> Self:
        """Open the window by the descriptor of its memory (``Window.descriptor``), which may be closed afterwards.

        Raises ValueError if another version wrote the memory, ProcessLookupError if its process has ended.
        """
        arena = Arena.open(descriptor)
        return cls(arena, os.pidfd_open(int(arena.header[HeaderField.PROCESS])))

    @property
    def is_closed(self) -> bool:
        """True while the writer does not allow answers from the window, and after the writer's regular end."""
        return int(self._arena.header[HeaderField.UNTIL]) < read_clock() * SECOND

    @property
    def ended(self) -> bool:
        """True if the writer has closed the window or has died. Then other servers may have newer samples."""
        return self.is_closed or bool(self._end.poll(0))

    def close(self) -> None:
        """Close the descriptor. The memory is unmapped with this object."""
        os.close(self.owner)

    def _consistent(self, keys: SeriesKeys, answer: Callable[[FoundRows], T | None]) -> T | None:
        marks = self._rows.marks
        attempts, until = 0, 0.0
        while not self.is_closed:
            found = self._look_up(keys)
            if not found.whole:
                return None
            before = marks.begin_read(found.place, found.series_place, len(found.rows))
            if before is not None:
                made = answer(found)
                if marks.end_read(found.place, before):
                    return made
            else:
                # A write is under way, or a row went to another series.
                keys.derived.pop(self, None)
            attempts += 1
            until = until or monotonic() + _SETTLED_SECONDS
            if attempts >= _FEWEST_ATTEMPTS and monotonic() > until:
                return None
            os.sched_yield()
        return None
