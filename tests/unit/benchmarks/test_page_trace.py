"""Tests of the page benchmark's reader of Chromium traces."""

import pytest
from benchmarks.page.trace import Frames, frames, mark, tasks

PAGE = {"name": "begin", "cat": "blink.user_timing", "pid": 1, "tid": 10, "ts": 1_000}


def frame(state, *, pid=1, name="frame_reporter"):
    return {"name": "PipelineReporter", "pid": pid, "args": {name: {"state": state}}}


def task(ts, cpu_us, **others):
    return {"name": "RunTask", "ph": "X", "pid": 1, "tid": 10, "ts": ts, "tdur": cpu_us, **others}


def test_frames_are_counted_by_what_became_of_them():
    events = [
        frame("STATE_PRESENTED_ALL"),
        frame("STATE_PRESENTED_PARTIAL"),
        frame("STATE_NO_UPDATE_DESIRED"),
        frame("STATE_DROPPED"),
        frame("STATE_DROPPED", name="chrome_frame_reporter"),
        {"name": "PipelineReporter", "pid": 1, "args": {}},
        frame("STATE_DROPPED", pid=2),
    ]
    assert frames(events, PAGE) == Frames(shown=2, dropped=2)
    assert Frames(99, 1).share == 0.01


def test_tasks_are_those_of_the_pages_thread_in_the_time_requested():
    events = [
        task(1_500, 20_000),
        task(2_000, 4_000),
        task(9_000, 50_000),
        task(2_000, 70_000, tid=11),
        {"name": "RunTask", "ph": "I", "pid": 1, "tid": 10, "ts": 1_600},
    ]
    found = tasks(events, PAGE, 1_000, 9_000)
    assert (found.total, found.longest, found.over) == (24.0, 20.0, 1)


def test_a_mark_that_the_page_never_made_is_reported():
    assert mark([{"name": "begin", "cat": "toplevel"}, PAGE], "begin") is PAGE
    with pytest.raises(KeyError):
        mark([], "begin")
