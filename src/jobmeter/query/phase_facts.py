"""Reads the facts that the phases of a job are derived from: lines of the whole job, reports, events, log lines."""

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Protocol, TypeVar

import numpy as np

from jobmeter.errors import LimitExceededError, QueryTimeoutError
from jobmeter.model.batch import Int64s, SeriesKeys
from jobmeter.model.catalog import Aggregate
from jobmeter.model.event import Event, EventFilter, EventType
from jobmeter.model.job import Job, JobView
from jobmeter.model.log import LogLine
from jobmeter.model.question import Question
from jobmeter.model.time import NS_PER_MS, TimeRange
from jobmeter.query.checkpoints import Saying, collect_checkpoint_reports
from jobmeter.query.course import Course
from jobmeter.query.defaults import choose_step, compute_life
from jobmeter.query.meter import Meter
from jobmeter.query.phases import PREPARING, SCHEDULED, PhaseFacts
from jobmeter.query.request import By, JobRef, LogQuestion, MetricQuery
from jobmeter.query.sampled import SampledQuestion
from jobmeter.query.selection import find_own_series
from jobmeter.query.source import Source, read_series_buckets

STEPS = 720
"""Most steps in which a job's life is read."""
REPORTS = frozenset(
    f"app.{name}" for name in ("step", "global_step", "iteration", "loss", "train_loss", "step_time", "progress")
)
"""Metrics by which a program reports its steps."""
NUMBERS = ("app.step", "app.global_step", "app.iteration")
"""Metrics among them that are numbers of steps: the first one that a program reports counts."""
MOST_EVENTS, MOST_LINES = 1_000, 1_000
_CONCLUSIONS = frozenset({EventType.FINDING, EventType.ALERT})
"""Types of events that Jobmeter derives from samples or from other events."""
_WORD = "checkpoint"
_WORDS = re.compile(r"(?<=[a-z])(?=[A-Z])")
"""Border between two words of a reason such as CheckpointSaved."""

R = TypeVar("R")


class Answering(Protocol):
    """Function that answers questions within the scope of a caller."""

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
    courses, (reports, steps) = _courses(job, answer, metrics, span), _reports(source, job, span, meter)
    # The search of the log is the last of all: it may take what is left of the caller's budget.
    said = collect_checkpoint_reports([*_read_lines(_lines(job, answer)), *_read_events(events)])
    recorded = [one.created for one in job.checkpoints if one.created is not None]
    return PhaseFacts(
        courses=courses,
        reports=reports,
        steps=steps,
        events=[event for event in events if event.reason in SCHEDULED | PREPARING],
        checkpoints=said._replace(moments=sorted([*said.moments, *recorded])),
    )


def _run_span(view: JobView, now_ms: int) -> TimeRange:
    """Return the life of a job from the start of its first attempt on."""
    span = compute_life(view.job, now_ms)
    starts = [one.start for one in view.replicas if one.start is not None]
    return TimeRange(min([span.start_ms, *starts]), span.end_ms)


def _courses(job: Job, answer: Answering, metrics: Sequence[str], span: TimeRange) -> Mapping[str, Course]:
    query = MetricQuery(
        subject=JobRef(job.id, job.project),
        metrics=tuple(metrics),
        range=span,
        step_ms=choose_step(span, STEPS),
        by=By.JOB,
        aggregate=Aggregate.WHOLE,
    )
    return {
        one.line.metric: Course(one.presence.first, one.presence.until, one.line.value)
        for one in answer(SampledQuestion(query))
    }


def _reports(source: Source, job: Job, span: TimeRange, meter: Meter) -> tuple[Int64s, Course | None]:
    """Return the times of the first and the last of ``REPORTS`` in each bucket, and the reported numbers of steps."""
    series = find_own_series(source.store, job, REPORTS, meter.limits)
    counters = np.zeros(len(series), np.bool_)
    step_ms = choose_step(span, STEPS)
    columns = read_series_buckets(
        source, SeriesKeys.from_series(series), counters, span, step_ms, owned_ms=0, meter=meter
    )
    found: Int64s = np.unique(np.concatenate([columns.first_time, columns.last_time]))
    names = {one.metric for one in series}
    numbers = next((name for name in NUMBERS if name in names), None)
    own = np.array([one.metric == numbers for one in series], np.bool_)[columns.index] & np.isfinite(columns.last)
    order = np.lexsort((columns.last[own], columns.last_time[own]))
    time, value = columns.last_time[own][order], columns.last[own][order]
    return found, Course(time, time, value) if len(time) else None


def _events(job: Job, answer: Answering) -> list[Event]:
    question = EventFilter(projects=frozenset({job.project}), jobs=(job.id,), without=_CONCLUSIONS, limit=MOST_EVENTS)
    return answer(question).events


def _lines(job: Job, answer: Answering) -> list[LogLine]:
    question = LogQuestion(ref=JobRef(job.id, job.project), contains=_WORD, limit=MOST_LINES)
    # Checkpoints are found by writes too: a log that is too long to search does not matter.
    with suppress(LimitExceededError, QueryTimeoutError):
        return answer(question).lines
    return []


def _read_lines(lines: Iterable[LogLine]) -> Iterable[Saying]:
    return ((line.time_ns // NS_PER_MS, line.replica, line.text) for line in lines)


def _read_events(events: Iterable[Event]) -> Iterable[Saying]:
    texts = ((event, f"{_WORDS.sub(' ', event.reason)} {event.message}") for event in events)
    return ((event.time, event.replica, text) for event, text in texts if _WORD in text.lower())
