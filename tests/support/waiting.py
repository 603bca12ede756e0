"""Waits for a state. This is the only test module that sleeps: no test orders threads or processes by time."""

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
SECONDS = 600.0
"""Time after which a test counts as hung. It is wide, so that a busy machine decides no test."""
_SHORTEST, _LONGEST = 0.01, 0.1
"""Seconds between two polls. They grow during a wait, so that polls leave the processor to the awaited work."""


def wait_until(condition: Callable[[], T], what: str = "it", seconds: float = SECONDS) -> T:
    """Return the value of ``condition`` as soon as it is true. The deadline fails a test that would hang."""
    began = time.monotonic()
    while not (found := condition()):
        time.sleep(_pause(began, what, seconds))
    return found


def _pause(began: float, what: str, seconds: float) -> float:
    """Return the wait before the next poll, a tenth of the time since ``began``. Fail after ``seconds``."""
    elapsed = time.monotonic() - began
    assert elapsed < seconds, f"{what} did not happen within {seconds:g} s"
    return min(max(elapsed / 10, _SHORTEST), _LONGEST)


async def until(condition: Callable[[], T], what: str = "it", seconds: float = SECONDS) -> T:
    """Return the value of ``condition`` as soon as it is true, while the event loop runs."""
    began = time.monotonic()
    while not (found := condition()):
        pause_seconds = _pause(began, what, seconds)
        await asyncio.sleep(pause_seconds)
    return found


async def turn() -> None:
    """Run every ready task once."""
    await asyncio.sleep(0)


async def never(seconds: float = 3_600.0) -> None:
    """Sleep longer than any test, or for ``seconds`` in a task that a test stops or outlasts."""
    await asyncio.sleep(seconds)


def pause() -> None:
    """Sleep between two polls of something that needs no action of the test."""
    time.sleep(_SHORTEST)
