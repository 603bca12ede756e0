"""Tests of observations sent to the registry, against a slow model that keeps one entry for each object."""

from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.fakes import NOW, FakeRegistry, SetClock

from jobmeter.errors import UnavailableError
from jobmeter.ingest.observe import NOTICEABLE_MS, Observer
from jobmeter.model.batch import SampleBatch, SeriesKeys
from jobmeter.model.log import LogLine
from jobmeter.model.series import Series
from jobmeter.model.series_table import SeriesTable
from jobmeter.model.time import MINUTE, SECOND
from jobmeter.registry.stored import Observation

SERIES = [
    Series("cpu.usage", job="a", replica="worker-0", node="n1"),
    Series("memory.usage", job="a", replica="worker-0", node="n1"),
    Series("cpu.usage", job="a", replica="worker-1", attempt=1, node="n2", cluster="c"),
    Series("gpu.power", job="a", replica="worker-1", node="n2", device="gpu0"),
    Series("node.load1", node="n1"),
    Series("node.load1", project="other", node="n1"),
    Series("app.loss", project="other", job="a"),
    Series("app.nothing"),
]
PLACES = ("project", "job", "replica", "attempt", "cluster", "node", "device")

moments = st.one_of(st.integers(-90, 90), st.integers(-20, 20).map(lambda ten: ten * 10)).map(lambda at: at * SECOND)
steps = st.one_of(
    st.tuples(st.just("batch"), st.lists(st.tuples(st.integers(0, len(SERIES) - 1), moments), max_size=8)),
    st.tuples(st.just("lines"), st.lists(st.tuples(st.sampled_from("ab"), moments), max_size=3)),
    st.tuples(st.just("flush"), st.none()),
    st.tuples(st.just("forget"), st.none()),
    st.tuples(st.just("wait"), st.integers(0, 100)),
    st.tuples(st.just("fail"), st.booleans()),
)


class Model:
    """Model of the same rules, object by object."""

    def __init__(self, registry, clock, many=1_000):
        self.registry, self.clock, self.many = registry, clock, many
        self.reported, self.waiting, self.reported_ms = {}, {}, {}
        self.retry_at, self.unreachable, self.behind = 0, False, False

    def see(self, rows):
        sighting: dict[tuple[object, ...], tuple[int, int]] = {}
        for entity, time in rows:
            first, last = sighting.get(entity, (time, time))
            sighting[entity] = min(first, time), max(last, time)
        urgent = {entity: times for entity, times in sighting.items() if self.is_urgent(entity, times)}
        for entity, times in sighting.items():
            if entity not in urgent and times[1] > self.reported[entity][1]:
                widen(self.waiting, entity, times)
        along = {}
        if len(self.reported) >= self.many and any(self.is_due(entity, times) for entity, times in urgent.items()):
            along, self.waiting = self.waiting, {}
        if self.unreachable and self.clock.time_ms < self.retry_at:
            self.postpone(urgent, UnavailableError("away"), along)
            return
        together = dict(along)
        for entity, times in urgent.items():
            widen(together, entity, times)
        try:
            self.report(together)
        except UnavailableError as error:
            self.postpone(urgent, error, along)
            return
        if self.behind:
            with suppress(UnavailableError):
                self.flush()
                self.behind = False

    def postpone(self, urgent, error, along):
        """Keep known objects for a registry that is away; fail for new ones."""
        state = all(entity in self.reported for entity in urgent)
        for entities in (along, urgent if state else {}):
            for entity, times in entities.items():
                widen(self.waiting, entity, times)
        if not state:
            raise error

    def is_urgent(self, entity, times):
        if entity not in self.reported or times[0] < self.reported[entity][0]:
            return True
        return self.is_due(entity, times)

    def is_due(self, entity, times):
        if entity not in self.reported:
            return False
        gone_on = times[1] - self.reported[entity][1]
        if len(self.reported) >= self.many:
            noticeable_ms = min(NOTICEABLE_MS * (1 + len(self.reported) // self.many), MINUTE)
            return gone_on >= noticeable_ms <= self.clock.time_ms - self.reported_ms[entity]
        return gone_on >= NOTICEABLE_MS or (gone_on > 0 and times[1] < self.clock.time_ms - MINUTE)

    def report(self, entities):
        if entities:
            try:
                self.registry.observe(
                    [
                        Observation(**dict(zip(PLACES, entity, strict=True)), first_ms=first, last_ms=last)
                        for entity, (first, last) in entities.items()
                    ],
                    self.clock.time_ms,
                )
            except UnavailableError:
                self.unreachable = self.behind = True
                self.retry_at = self.clock.time_ms + SECOND
                raise
            self.unreachable = False
        for entity, times in entities.items():
            widen(self.reported, entity, times)
            self.reported_ms[entity] = self.clock.time_ms

    def flush(self):
        waiting, self.waiting = self.waiting, {}
        try:
            self.report(waiting)
        except UnavailableError:
            self.waiting = waiting
            raise

    def forget(self, project, job):
        for table in (self.reported, self.waiting):
            for entity in [entity for entity in table if entity[:2] == (project, job)]:
                del table[entity]


def widen(table, entity, times):
    first, last = table.get(entity, times)
    table[entity] = min(first, times[0]), max(last, times[1])


def place(series):
    return tuple(getattr(series, name) for name in PLACES)


def batch(rows):
    index = np.array([at for at, _ in rows], np.uint32)
    return SampleBatch(SERIES, index, np.array([time for _, time in rows], np.int64), np.ones(len(rows)))


def line(job, time):
    return LogLine(project="default", job=job, replica="worker-0", time_ns=time * 1_000_000, text="")


def attempt(act, *arguments):
    try:
        act(*arguments)
    except UnavailableError:
        return "failed"
    return "done"


def take(registry):
    reported = sorted(registry.observations, key=repr)
    registry.observations.clear()
    return reported


@settings(max_examples=200, deadline=None)
@pytest.mark.parametrize("many", [1_000, 2])
@given(st.lists(steps, max_size=25))
def test_what_is_reported_is_what_a_slow_model_reports(many, walk):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("jobmeter.ingest.observe._MANY", many)
        follow(walk, many)


def follow(walk, many):
    ours, theirs, clock = FakeRegistry(), FakeRegistry(), SetClock()
    observer, model = Observer(ours, clock, SeriesTable()), Model(theirs, clock, many)
    for what, content in walk:
        if what == "batch":
            rows = [(at, NOW + moment) for at, moment in content]
            entities = [(place(SERIES[at]), time) for at, time in rows if SERIES[at].job or SERIES[at].node]
            done = attempt(observer.observe_all, [batch(rows)]), attempt(model.see, entities)
        elif what == "lines":
            rows = [(job, NOW + moment) for job, moment in content]
            entities = [(("default", job, "worker-0", 0, "", "", ""), time) for job, time in rows]
            done = attempt(observer.observe_lines, [line(*row) for row in rows]), attempt(model.see, entities)
        elif what == "flush":
            done = attempt(observer.flush), attempt(model.flush)
        elif what == "forget":
            done = attempt(observer.forget, "default", "a"), attempt(model.forget, "default", "a")
        elif what == "wait":
            clock.time_ms += content * SECOND
            continue
        else:
            ours.failure = theirs.failure = UnavailableError("away") if content else None
            continue
        assert done[0] == done[1]
        assert take(ours) == take(theirs)


def test_very_many_entities_are_forgotten_but_not_what_has_yet_to_be_reported(monkeypatch):
    monkeypatch.setattr("jobmeter.ingest.observe._MOST", 3)
    registry, clock = FakeRegistry(), SetClock()
    observer = Observer(registry, clock, SeriesTable())
    observer.observe_all([batch([(at, NOW) for at in (0, 2, 3)])])
    observer.observe_all([batch([(0, NOW + SECOND), (4, NOW)])])
    take(registry)
    observer.observe_all([batch([(4, NOW)])])
    assert [reported.node for reported in take(registry)] == ["n1"]
    observer.flush()
    assert [(reported.job, reported.last_ms) for reported in registry.observations] == [("a", NOW + SECOND)]


def test_observations_survive_a_new_generation_of_the_table():
    registry, clock, table = FakeRegistry(), SetClock(), SeriesTable(len(SERIES))
    observer = Observer(registry, clock, table)
    observer.observe_all([batch([(0, NOW)])])
    table.assign_rows(SeriesKeys.from_series([Series("cpu.usage", job="another")]).series)
    assert table.generation == 1
    observer.observe_all([batch([(at, NOW) for at in range(len(SERIES))])])
    reported = [
        (sighting.project, sighting.job, sighting.replica, sighting.node, sighting.device)
        for sighting in registry.observations
    ]
    assert len(reported) == len(set(reported)) == 6


def test_of_many_entities_those_reported_longest_ago_are_reported_along_with_one_that_has_to_be(monkeypatch):
    monkeypatch.setattr("jobmeter.ingest.observe._MANY", 2)
    monkeypatch.setattr("jobmeter.ingest.observe._ALONG", 2)
    registry, clock = FakeRegistry(), SetClock()
    observer = Observer(registry, clock, SeriesTable())
    series = [Series("cpu.usage", job=f"j{n}", node="n1") for n in range(5)]

    def see(*rows):
        clock.time_ms = NOW + max(second for _, second in rows) * SECOND
        index = np.array([job for job, _ in rows], np.uint32)
        time = np.array([NOW + second * SECOND for _, second in rows], np.int64)
        observer.observe_all([SampleBatch(series, index, time, np.ones(len(rows)))])
        reported = {(int(one.job[1:]), (one.last_ms - NOW) // SECOND) for one in registry.observations if one.job}
        registry.observations.clear()
        return reported

    # The first two entities reach the number from which others are reported along.
    assert see((0, 0), (1, 3)) == {(0, 0), (1, 3)}
    assert see((2, 2), (3, 1), (4, 4)) == {(2, 2), (3, 1), (4, 4)}
    assert see(*((job, 5) for job in range(5))) == set()
    assert see((4, 90)) == {(4, 90), (0, 5), (3, 5)}
    assert see((4, 91)) == set()
    assert see((4, 180)) == {(4, 180), (1, 5), (2, 5)}
    assert see((4, 270)) == {(4, 270)}


def test_of_many_entities_one_that_catches_up_is_reported_as_seldom_as_one_that_is_live(monkeypatch):
    monkeypatch.setattr("jobmeter.ingest.observe._MANY", 2)
    registry, clock = FakeRegistry(), SetClock()
    observer = Observer(registry, clock, SeriesTable())
    for second in range(0, 3_600, 10):
        observer.observe_all([batch([(at, NOW + second * SECOND) for at in (0, 2)])])
    assert [(one.replica, one.last_ms) for one in registry.observations] == [("worker-0", NOW), ("worker-1", NOW)]
    clock.time_ms += MINUTE
    observer.observe_all([batch([(0, NOW + 3_600 * SECOND)])])
    assert {(one.replica, one.last_ms - NOW) for one in registry.observations[2:]} == {
        ("worker-0", 3_600 * SECOND),
        ("worker-1", 3_590 * SECOND),
    }


ROWS = st.lists(st.tuples(st.integers(0, len(SERIES) - 1), moments), min_size=1, max_size=8)


@given(st.lists(ROWS, min_size=1, max_size=4))
def test_several_batches_are_reported_as_one_would_be(parts):
    reported = []
    for split in (True, False):
        registry = FakeRegistry()
        observer = Observer(registry, SetClock(), SeriesTable())
        rows = [[(at, NOW + moment) for at, moment in part] for part in parts]
        observer.observe_all(
            [batch(part) for part in rows] if split else [batch([row for part in rows for row in part])]
        )
        reported.append(take(registry))
    assert reported[0] == reported[1]


def test_very_many_that_wait_are_reported_in_parts():
    registry, clock = FakeRegistry(), SetClock()
    observer = Observer(registry, clock, SeriesTable())
    series = [Series("cpu.usage", job=f"j{n}", node="n1") for n in range(5_000)]
    index = np.arange(len(series), dtype=np.uint32)
    for time in (NOW - 2_000, NOW - 1_000):
        observer.observe_all([SampleBatch(series, index, np.full(len(series), time), np.ones(len(series)))])
    reported = len(registry.observations)
    parts = 1
    while observer.flush():
        parts += 1
    assert parts == 3
    assert len(registry.observations) == reported + len(series)
    assert {one.last_ms for one in registry.observations[reported:]} == {NOW - 1_000}
    assert not observer.flush()
