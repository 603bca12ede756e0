"""Waiting for a state. The only place in the tests that sleeps: no test orders threads or processes by time."""

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
SECONDS = 600.0
"""Time after which a test has hung. Wide, so that a busy machine decides no test."""
_PAUSE = 0.01


def wait_until(condition: Callable[[], T], what: str = "it", seconds: float = SECONDS) -> T:
    """What ``condition`` gives as soon as it is true. The deadline ends a test that would hang, and fails it."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"{what} did not happen within {seconds:g} s"
        time.sleep(_PAUSE)
    return found


async def until(condition: Callable[[], T], what: str = "it", seconds: float = SECONDS) -> T:
    """As ``wait_until``, while the event loop runs."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"{what} did not happen within {seconds:g} s"
        await asyncio.sleep(_PAUSE)
    return found


async def turn() -> None:
    """Let every task that is ready run once."""
    await asyncio.sleep(0)


async def never(seconds: float = 3_600.0) -> None:
    """What does not end by itself within a test; or a time-out's worth, for what is to be stopped or outlasted."""
    await asyncio.sleep(seconds)


def pause() -> None:
    """A pause between two polls of something that runs by itself."""
    time.sleep(_PAUSE)
