"""Chromium's own trace: shown and dropped frames, and the load of the page's thread.

https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU has the format of the events.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

CATEGORIES = ("toplevel", "benchmark", "cc", "blink.user_timing", "disabled-by-default-devtools.timeline.frame")
FRAME_MS = 1000 / 60
_SHOWN, _DROPPED = ("STATE_PRESENTED_ALL", "STATE_PRESENTED_PARTIAL"), "STATE_DROPPED"
_TASKS = frozenset({"RunTask", "ThreadControllerImpl::RunTask"})

Event = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Frames:
    """Frames that something on the screen should have changed in; those that the browser had to leave out count all."""

    shown: int
    dropped: int

    @property
    def share(self) -> float:
        """The share that was dropped."""
        return self.dropped / max(self.shown + self.dropped, 1)


@dataclass(frozen=True, slots=True)
class Tasks:
    """Tasks of the page's main thread, in milliseconds of its own CPU time."""

    total: float
    longest: float
    over: int
    """How many took longer than a frame lasts."""


def mark(events: Iterable[Event], name: str) -> Event:
    """The event of ``performance.mark(name)``. KeyError where the page never made it."""
    for event in events:
        if event.get("name") == name and "blink.user_timing" in event.get("cat", ""):
            return event
    raise KeyError(name)


def frames(events: Iterable[Event], page: Event) -> Frames:
    """The frames of the page of that mark, by what became of each."""
    shown = dropped = 0
    for event in events:
        if event.get("name") != "PipelineReporter" or event.get("pid") != page["pid"]:
            continue
        args = event.get("args", {})
        state = (args.get("frame_reporter") or args.get("chrome_frame_reporter") or {}).get("state")
        shown += state in _SHOWN
        dropped += state == _DROPPED
    return Frames(shown, dropped)


def tasks(events: Iterable[Event], page: Event, begin_us: float = 0.0, end_us: float = float("inf")) -> Tasks:
    """The tasks that the thread of that mark began in ``[begin_us, end_us)``, which it did not do within others."""
    found = [
        event["tdur"] / 1000
        for event in events
        if event.get("ph") == "X"
        and event.get("name") in _TASKS
        and (event.get("pid"), event.get("tid")) == (page["pid"], page["tid"])
        and begin_us <= event["ts"] < end_us
        and "tdur" in event
    ]
    return Tasks(sum(found), max(found, default=0.0), sum(one > FRAME_MS for one in found))
