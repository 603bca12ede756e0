"""Waiting for a state. The only place in the tests that sleeps: no test orders threads or processes by time."""

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
SECONDS = 600.0
"""Time after which a test has hung. Wide, so that a busy machine decides no test."""
_SHORTEST, _LONGEST = 0.01, 0.1
"""Seconds between two looks. They grow while a test waits, so that its questions leave the processor to the answer."""


def wait_until(condition: Callable[[], T], what: str = "it", seconds: float = SECONDS) -> T:
    """What ``condition`` gives as soon as it is true. The deadline ends a test that would hang, and fails it."""
    began = time.monotonic()
    while not (found := condition()):
        time.sleep(_pause(began, what, seconds))
    return found


def _pause(began: float, what: str, seconds: float) -> float:
    """Return how long to wait before the next look, a tenth of the time since ``began``; fail after ``seconds``."""
    elapsed = time.monotonic() - began
    assert elapsed < seconds, f"{what} did not happen within {seconds:g} s"
    return min(max(elapsed / 10, _SHORTEST), _LONGEST)


async def until(condition: Callable[[], T], what: str = "it", seconds: float = SECONDS) -> T:
    """As ``wait_until``, while the event loop runs."""
    began = time.monotonic()
    while not (found := condition()):
        await asyncio.sleep(_pause(began, what, seconds))
    return found


async def turn() -> None:
    """Let every task that is ready run once."""
    await asyncio.sleep(0)


async def never(seconds: float = 3_600.0) -> None:
    """What does not end by itself within a test; or a time-out's worth, for what is to be stopped or outlasted."""
    await asyncio.sleep(seconds)


def pause() -> None:
    """A pause between two polls of something that runs by itself."""
    time.sleep(_SHORTEST)
