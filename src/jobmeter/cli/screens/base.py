"""Base of screens: polls while visible, and reports when the server does not answer."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from textual.binding import Binding
from textual.screen import Screen
from textual.widgets import Static

from jobmeter.cli.output import format_time
from jobmeter.cli.screens.table import LiveTable
from jobmeter.errors import JobmeterError

_T = TypeVar("_T")


class LiveScreen(Screen[None]):
    """Screen with a title line, tables and keys to sort them."""

    BINDINGS = [  # noqa: RUF012 - as Textual declares it
        Binding("s", "sort", "Sort"),
        Binding("r", "reverse", "Reverse"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._now = asyncio.Event()
        self._trouble = ""

    def follow(self, pause: float, load: Callable[[], _T], show: Callable[[_T], None]) -> None:
        """Query on a thread and show the answer, every ``pause`` seconds, until the screen is left."""
        self.run_worker(self._follow(pause, load, show))

    async def _follow(self, pause: float, load: Callable[[], _T], show: Callable[[_T], None]) -> None:
        while True:
            if self._is_shown:
                await self._refresh(load, show)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._now.wait(), pause)
                self._now.clear()

    async def _refresh(self, load: Callable[[], _T], show: Callable[[_T], None]) -> None:
        try:
            found = await asyncio.to_thread(load)
        except JobmeterError as error:
            if self._is_shown:
                self._trouble = error.message
                self.say(error.message)
            return
        # The user may have left the screen meanwhile.
        if self._is_shown:
            self._trouble = ""
            show(found)

    @property
    def _is_shown(self) -> bool:
        """True while it is mounted: a program that ends first removes the widgets of a screen."""
        return self.is_current and bool(self.query("#title"))

    def on_screen_resume(self) -> None:
        """Refresh at once: the values date from when the screen was left."""
        self._now.set()

    def say(self, text: str) -> None:
        """Show a line of untrusted text as the title."""
        title = self.query_one("#title", Static)
        title.set_class(bool(self._trouble), "trouble")
        title.update(text)

    def action_sort(self) -> None:
        """Sort the table that has the cursor by its next column."""
        self._table().sort_next()

    def action_reverse(self) -> None:
        """Reverse the sort order."""
        self._table().reverse()

    def _table(self) -> LiveTable:
        return self.focused if isinstance(self.focused, LiveTable) else self.query(LiveTable).first()


def format_moment(now_ms: int) -> str:
    """Format the time that a screen shows."""
    return f"{format_time(now_ms)} UTC"
