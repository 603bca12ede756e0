"""Checkpoints of a job: reported ones, and bursts of writes during which its devices wait."""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from jobmeter.model.batch import Bools
from jobmeter.model.time import HOUR
from jobmeter.query.course import Course, Interval
from jobmeter.query.idle import IDLE

_BURST, _LEAST_BURST = 4.0, 2.0**20
"""Writes are a burst from this multiple of their usual rate on, and from this rate in bytes a second."""
_WAITS, _STANDS = 0.15, 0.5
"""Least loss of work in a sample, as a share: next to a burst of writes, and in samples that extend a wait."""
_ENDS = re.compile(r"(?i)\b(?:saved|wrote|written|finished|done|completed?|success\w*)\b")
_BEGINS = re.compile(r"(?i)\b(?:saving|writing|(?:begin\w*|start\w*) (?:to )?(?:sav|writ)\w*|checkpoint start\w*)\b")
_LONGEST_MS = HOUR
"""Longest time in milliseconds between a message that announces a checkpoint and the one that reports its end."""

Saying = tuple[int, str, str]
"""Message about a checkpoint: its time in ms, its replica and its text."""


class CheckpointReports(NamedTuple):
    """Reports of checkpoints: intervals between a first and a last message, and times of single messages."""

    intervals: Sequence[Interval] = ()
    moments: Sequence[int] = ()


def find_checkpoints(
    work: Course | None,
    writes: Sequence[Course],
    said: CheckpointReports,
    training: Sequence[Interval],
    after: Sequence[Interval],
) -> list[Interval] | None:
    """Return the intervals in which a job wrote checkpoints; None without any evidence.

    ``work`` is the load of its devices, ``writes`` the rate at which it writes. ``training`` are the intervals of its
    work, ``after`` the intervals after its last work.
    """
    if not said.intervals and (work is None or not (writes or said.moments)):
        return None
    if work is None or not training:
        return _union(said.intervals)
    inside = _find_inside(work, training)
    # Devices that go on working do not wait for what the program writes beside.
    found = [one for one in said.intervals if _rests(work, inside, one)]
    return _union([*found, *_waits(work, writes, said.moments, inside, _find_inside(work, after))])


def _rests(work: Course, training: Bools, interval: Interval) -> bool:
    """Return False if devices were measured at their usual work in an interval that is longer than a sample."""
    width = np.minimum(work.until, interval[1]) - np.maximum(work.time, interval[0])
    width = np.maximum(width, 0)
    busy = work.value[training & (work.value > IDLE)]
    if not width.any() or not len(busy) or interval[1] - interval[0] <= float(np.median(work.until - work.time)):
        return True
    return float(np.average(work.value, weights=width)) <= _STANDS * float(np.median(busy))


def _waits(
    work: Course, written: Sequence[Course], moments: Sequence[int], training: Bools, after: Bools
) -> Iterator[Interval]:
    """Yield the intervals in which devices do less than usual beside a burst of writes, or at a reported moment.

    ``training`` and ``after`` are the points of the training, and of the time after the last work, bool[n].
    """
    inside = training | after
    busy = work.value[training & (work.value > IDLE)]
    if not len(busy):
        return
    waits = np.clip(1.0 - work.value / float(np.median(busy)), 0.0, 1.0) * inside
    writes = _mark_moments(work, moments)
    for course in written:
        rate = course.read_at(work.time)
        valid = inside & np.isfinite(rate)
        if valid.any():
            usual = float(np.quantile(rate[valid], 0.25))
            writes |= valid & (rate > max(_BURST * usual, _LEAST_BURST))
    # A counter shows in a sample what was written before it, and the kernel may write later than the program.
    beside = writes.copy()
    beside[1:] |= writes[:-1]
    beside[:-1] |= writes[1:]
    chosen = _extend_runs((writes | (beside & training)) & (waits >= _WAITS), training & (waits >= _STANDS))
    firsts = np.flatnonzero(chosen & ~np.append(False, chosen[:-1]))
    lasts = np.flatnonzero(chosen & ~np.append(chosen[1:], False))
    width = work.until - work.time
    for first, last in zip(firsts.tolist(), lasts.tolist(), strict=True):
        # A wait that begins within a sample lies at its end, one that ends within a sample at its beginning.
        start = int(work.until[first] - width[first] * waits[first]) if last > first else int(work.time[first])
        yield start, int(work.time[last] + width[last] * waits[last])


def _find_inside(work: Course, spans: Iterable[Interval]) -> Bools:
    """Return bool[n]: True for points that overlap some intervals."""
    inside = np.zeros(len(work.time), np.bool_)
    for start, end in spans:
        inside |= (work.until > start) & (work.time < end)
    return inside


def _mark_moments(work: Course, moments: Sequence[int]) -> Bools:
    """Return bool[n]: True for points that contain one of the moments."""
    marked = np.zeros(len(work.time), np.bool_)
    place = np.searchsorted(work.time, np.asarray(moments, np.int64), side="right") - 1
    marked[place[place >= 0]] = True
    return marked


def _extend_runs(chosen: Bools, more: Bools) -> Bools:
    """Return bool[n]: the chosen points, and the runs of ``more`` that touch them."""
    either = chosen | more
    number = np.cumsum(either & ~np.append(False, either[:-1]))
    return either & np.isin(number, number[chosen])


def _union(intervals: Iterable[Interval]) -> list[Interval]:
    found: list[Interval] = []
    for start, end in sorted(intervals):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        elif end > start:
            found.append((start, end))
    return found


def collect_checkpoint_reports(sayings: Iterable[Saying]) -> CheckpointReports:
    """Return the reports of checkpoints in some messages.

    An interval goes from a message that announces a checkpoint to the next message of that replica that reports its
    end.
    """
    begun: dict[str, int] = {}
    intervals: list[Interval] = []
    moments: list[int] = []
    for time, replica, text in sorted(sayings):
        if _ENDS.search(text):
            start = begun.pop(replica, None)
            if start is not None and time - start <= _LONGEST_MS:
                intervals.append((start, time))
            else:
                moments.append(time)
        elif _BEGINS.search(text):
            if replica in begun:
                moments.append(begun[replica])
            begun[replica] = time
    return CheckpointReports(intervals, sorted([*moments, *begun.values()]))
