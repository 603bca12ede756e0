"""Evaluation of a Chromium trace: shown and dropped frames, and the load of the page's main thread.

https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU describes the format of the events.
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
    """Numbers of frames that should have changed the screen: shown, and dropped by the browser."""

    shown: int
    dropped: int

    @property
    def share(self) -> float:
        """Return the share of frames that were dropped, 0 to 1."""
        return self.dropped / max(self.shown + self.dropped, 1)


@dataclass(frozen=True, slots=True)
class Tasks:
    """Tasks of the page's main thread: total and longest CPU time in milliseconds."""

    total: float
    longest: float
    over: int
    """Number of tasks that took longer than a frame."""


def mark(events: Iterable[Event], name: str) -> Event:
    """Return the event of ``performance.mark(name)``. Raises KeyError when the page never set that mark."""
    for event in events:
        if event.get("name") == name and "blink.user_timing" in event.get("cat", ""):
            return event
    raise KeyError(name)


def frames(events: Iterable[Event], page: Event) -> Frames:
    """Count the shown and the dropped frames of the process that set ``page``, a mark."""
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
    """Sum up the top-level tasks that began in ``[begin_us, end_us)`` on the thread that set ``page``, a mark."""
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
