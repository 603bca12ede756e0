"""Application of the screens: the list of jobs, and single jobs, until q."""

import asyncio
import select
import signal
import sys
from collections.abc import Callable
from threading import Thread
from typing import ClassVar, Literal

from textual.app import App
from textual.binding import Binding

from jobmeter.cli.screens.job import JobScreen
from jobmeter.cli.screens.jobs import JobsScreen
from jobmeter.cli.screens.watch import WatchScreen
from jobmeter.client.api import Api
from jobmeter.model.time import Clock

_PATIENCE = 10.0
"""Seconds to wait for an answer, so that the screen stays responsive."""


class TopApp(App[None]):
    """``jobmeter top`` on a terminal. ``pause`` is in seconds; with ``job`` it begins with that job."""

    CSS = """
    Screen { background: ansi_default; color: ansi_default; }
    #title { height: 1; padding: 0 1; text-style: bold; }
    #title.trouble { color: ansi_red; }
    #note { height: auto; padding: 0 1; text-style: dim; }
    #found, #curves { height: auto; padding: 0 1; }
    #found, #note { max-height: 33%; }
    #members { height: 1fr; layout: vertical; }
    #text { height: 1fr; padding: 0 1; }
    LiveTable { height: 1fr; background: ansi_default; }
    """
    ENABLE_COMMAND_PALETTE = False
    TITLE = "jobmeter top"
    BINDINGS: ClassVar = [Binding("ctrl+c", "quit", show=False, priority=True)]

    def __init__(self, api: Api, clock: Clock, pause: float, *, project: str | None, job: str | None) -> None:
        super().__init__(ansi_color=True)
        self.animation_level: Literal["none", "basic", "full"] = "none"
        self._watch = WatchScreen(Api(api.transport.with_timeout(_PATIENCE)), clock, project)
        self._pause, self._project, self._job = pause, project, job

    async def on_mount(self) -> None:
        """Open the list of jobs, and the job above it if one was named."""
        # Ctrl-C is the normal way to leave a live view, not a failure.
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self.exit)
        # The library reads a closed terminal again and again, as fast as it can.
        if sys.__stdin__ is not None:
            _watch_hangup(sys.__stdin__.fileno(), lambda: loop.call_soon_threadsafe(self.exit))
        await self.push_screen(JobsScreen(self._watch, self._pause))
        if self._job is not None:
            await self.push_screen(JobScreen(self._watch, self._pause, self._job, self._project))


def _watch_hangup(descriptor: int, act: Callable[[], object]) -> None:
    """Call ``act`` once, from a new thread, when the other end of a terminal is closed.

    For programs that do not get SIGHUP: under nohup, or without a session of the terminal. Waiting costs nothing: with
    no event requested, only the end of the terminal and its errors are reported. An end of input alone, as of a file or
    a pipe, is not a hangup.
    """

    def wait() -> None:
        watch = select.poll()
        watch.register(descriptor, 0)
        watch.poll()
        act()

    Thread(target=wait, name="hangup", daemon=True).start()
