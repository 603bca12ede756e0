"""Notices that a terminal is gone, for programs that are not sent SIGHUP: under nohup, or without a session of it."""

import select
from collections.abc import Callable
from threading import Thread


def on_hangup(descriptor: int, act: Callable[[], object]) -> None:
    """Call ``act`` once, from a thread of its own, when the other end of a terminal is closed.

    Waiting costs nothing: with no event requested, only the end of the terminal and its errors are reported. An end of
    input alone, as of a file or a pipe, is no hangup.
    """
    Thread(target=_wait, args=(descriptor, act), name="hangup", daemon=True).start()


def _wait(descriptor: int, act: Callable[[], object]) -> None:
    watch = select.poll()
    watch.register(descriptor, 0)
    watch.poll()
    act()
