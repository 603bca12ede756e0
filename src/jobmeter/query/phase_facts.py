"""Reads the facts that the phases of a job are derived from: lines of the whole job, reports, events, log lines."""

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Protocol, TypeVar

import numpy as np

from jobmeter.errors import LimitExceededError, QueryTimeoutError
from jobmeter.model.batch import Int64s, SeriesKeys
from jobmeter.model.catalog import Aggregate
from jobmeter.model.event import Event, EventFilter
from jobmeter.model.job import Job, JobView
from jobmeter.model.log import LogLine
from jobmeter.model.question import Question
from jobmeter.model.time import HOUR, NS_PER_MS, TimeRange
from jobmeter.query.defaults import default_step, life
from jobmeter.query.gather import own_series
from jobmeter.query.meter import Meter
from jobmeter.query.phases import PREPARING, SCHEDULED, Course, Interval, PhaseFacts
from jobmeter.query.request import By, JobRef, LogQuestion, MetricQuery
from jobmeter.query.sampled import SampledQuestion
from jobmeter.query.source import Source, buckets

STEPS = 1_440
"""Most steps in which a job's life is read."""
REPORTS = frozenset(
    f"app.{name}" for name in ("step", "global_step", "iteration", "loss", "train_loss", "step_time", "progress")
)
"""Metrics by which a program reports its steps."""
MOST_EVENTS, MOST_LINES = 1_000, 1_000
_WORD = "checkpoint"
_ENDS = re.compile(r"(?i)\b(?:saved|wrote|written|finished|done|completed?|success\w*)\b")
_BEGINS = re.compile(r"(?i)\b(?:saving|save|writing|write|begin\w*|start\w*)\b")
_WORDS = re.compile(r"(?<=[a-z])(?=[A-Z])")
"""Between the words of a reason such as CheckpointSaved; the words are joined."""
_LONGEST_MS = HOUR
"""A line that a checkpoint was written belongs to the one before that announced it, if that is no older than this."""

R = TypeVar("R")


class Answering(Protocol):
    """Answering questions within the scope of a caller."""

    def __call__(self, question: Question[R], /) -> R:
        """Return the answer. Raises as ``Executor.run`` does."""
        ...


def read_facts(source: Source, view: JobView, answer: Answering, meter: Meter, metrics: Sequence[str]) -> PhaseFacts:
    """Read the facts about a job that the caller may see, ``metrics`` as lines of the job as a whole.

    Raises LimitExceededError or QueryTimeoutError.
    """
    job = view.job
    span = _run_span(view, meter.clock.now_ms())
    events = _events(job, answer)
    saves, saved = checkpoint_times([*_of_lines(_lines(job, answer)), *_of_events(events)])
    recorded = [one.created for one in job.checkpoints if one.created is not None]
    return PhaseFacts(
        courses=_courses(job, answer, metrics, span),
        reports=_reports(source, job, span, meter),
        events=[event for event in events if event.reason in SCHEDULED | PREPARING],
        saves=saves,
        saved=sorted([*saved, *recorded]),
    )


def _run_span(view: JobView, now_ms: int) -> TimeRange:
    """Return the life of a job from the start of its first attempt on."""
    span = life(view.job, now_ms)
    starts = [one.start for one in view.replicas if one.start is not None]
    return TimeRange(min([span.start_ms, *starts]), span.end_ms)


def _courses(job: Job, answer: Answering, metrics: Sequence[str], span: TimeRange) -> Mapping[str, Course]:
    query = MetricQuery(
        subject=JobRef(job.id, job.project),
        metrics=tuple(metrics),
        range=span,
        step_ms=default_step(span, STEPS),
        by=By.JOB,
        aggregate=Aggregate.WHOLE,
    )
    return {
        one.line.metric: Course(one.presence.first, one.presence.until, one.line.value)
        for one in answer(SampledQuestion(query))
    }


def _reports(source: Source, job: Job, span: TimeRange, meter: Meter) -> Int64s:
    """Return the first and the last time in each step at which the program reported one of ``REPORTS``."""
    series = own_series(source.store, job, REPORTS, meter.limits)
    counters = np.zeros(len(series), np.bool_)
    step_ms = default_step(span, STEPS)
    columns = buckets(source, SeriesKeys.of(series), counters, span, step_ms, owned_ms=0, meter=meter)
    found: Int64s = np.unique(np.concatenate([columns.first_time, columns.last_time]))
    return found


def _events(job: Job, answer: Answering) -> list[Event]:
    question = EventFilter(projects=frozenset({job.project}), jobs=(job.id,), limit=MOST_EVENTS)
    return answer(question).events


def _lines(job: Job, answer: Answering) -> list[LogLine]:
    question = LogQuestion(ref=JobRef(job.id, job.project), contains=_WORD, limit=MOST_LINES)
    # Checkpoints are found by writes too: a log that is too long to search does not matter.
    with suppress(LimitExceededError, QueryTimeoutError):
        return answer(question).lines
    return []


Saying = tuple[int, str, str]
"""When a replica said something about a checkpoint, in ms; the replica; and the text."""


def _of_lines(lines: Iterable[LogLine]) -> Iterable[Saying]:
    return ((line.time_ns // NS_PER_MS, line.replica, line.text) for line in lines)


def _of_events(events: Iterable[Event]) -> Iterable[Saying]:
    texts = ((event, f"{_WORDS.sub(' ', event.reason)} {event.message}") for event in events)
    return ((event.time, event.replica, text) for event, text in texts if _WORD in text.lower())


def checkpoint_times(sayings: Iterable[Saying]) -> tuple[list[Interval], list[int]]:
    """Return the intervals in which replicas said that they wrote a checkpoint, and the moments of other sayings.

    An interval goes from a text that announces a checkpoint to the next one of that replica that says it was written.
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
    return intervals, sorted([*moments, *begun.values()])
