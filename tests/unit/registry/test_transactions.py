"""Tests of large writes: many records are several transactions with room for other writers; repeated ones are one."""

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import msgspec
import pytest
import sqlalchemy as sa

from jobmeter.model.event import EventFilter
from jobmeter.model.job import JobFilter, JobState
from jobmeter.model.record import EventRecord, JobRecord, NodeRecord, Records, ReplicaRecord
from jobmeter.model.retention import Retention
from jobmeter.registry import transactions
from jobmeter.registry.base import Registry
from jobmeter.registry.breaker import STATEMENT_SECONDS
from jobmeter.registry.database import Database
from jobmeter.registry.records import prepare
from jobmeter.registry.writers import WriterQueue

NOW = 1_790_000_000_000


class Watched(Database):
    """Database that records committed transactions and the number of rows each wrote."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.committed: list[str] = []
        self.after_commit = threading.Event()
        self.rows: list[int] = []
        sa.event.listen(self.engine, "before_cursor_execute", self._count)

    def _count(self, _c: object, _cursor: object, statement: str, parameters: object, _x: object, many: bool) -> None:
        if statement.startswith(("INSERT", "UPDATE")) and self.rows:
            self.rows[-1] += len(parameters) if many and isinstance(parameters, list) else 1

    @contextmanager
    def write(self, seconds: float = STATEMENT_SECONDS, *, key: str = "") -> Iterator[sa.Connection]:
        with super().write(seconds, key=key) as connection:
            self.rows.append(0)
            yield connection
        self.committed.append(key)
        self.wrote(key)

    def wrote(self, key: str) -> None:
        """Run after each transaction."""


W = TypeVar("W", bound=Watched)


def opened(tmp_path: Path, kind: type[W]) -> tuple[W, Registry]:
    database = kind(f"sqlite:///{tmp_path / 'registry.db'}")
    registry = Registry(database, Retention())
    database.committed.clear()
    database.rows.clear()
    return database, registry


def test_repeated_records_of_a_job_are_written_once(tmp_path):
    database, registry = opened(tmp_path, Watched)
    assert registry.record("a", Records(jobs=[JobRecord(job_id="j", name="n")] * 100_000), NOW) == 100_000
    assert database.committed == ["a"]
    assert sum(database.rows) < 10
    registry.close()


def test_different_records_of_one_job_are_one_update(tmp_path):
    database, registry = opened(tmp_path, Watched)
    records = [JobRecord(job_id="j", name=f"n{number}", user="ana" if number == 3 else None) for number in range(100)]
    registry.record("a", Records(jobs=records), NOW)
    assert sum(database.rows) < 10
    [job] = registry.find_job_head(None, "j", NOW)
    assert (job.name, job.user) == ("n99", "ana")
    registry.close()


def test_a_transaction_of_records_is_bounded_in_rows(tmp_path):
    database, registry = opened(tmp_path, Watched)
    wide = JobRecord(
        job_id="wide", replicas=[ReplicaRecord(name=f"w-{n}", node="n", devices=["g"]) for n in range(2000)]
    )
    jobs = [JobRecord(job_id=f"j{number}") for number in range(3 * transactions.MOST_ROWS)]
    nodes = [NodeRecord(name=f"n{number}") for number in range(2 * transactions.MOST_ROWS)]
    events = [EventRecord(time=NOW, job="j1", reason=f"r{number}") for number in range(2 * transactions.MOST_ROWS)]
    registry.record("a", Records(jobs=[wide, *jobs], nodes=nodes, events=events), NOW)
    assert registry.list_jobs(JobFilter(limit=0), NOW).total == len(jobs) + 1
    assert len(registry.find_job(None, "wide", NOW)[0].replicas) == 2000
    assert len(registry.find_job(None, "wide", NOW)[0].allocations) == 2000
    assert len(registry.list_nodes(None)) == len(nodes)
    assert registry.list_events(EventFilter(jobs=("j1",), limit=0)).total == len(events)
    # A row is inserted and updated.
    assert max(database.rows) <= 3 * transactions.MOST_ROWS
    registry.close()


class Meeting(Watched):
    """Database that starts a write of another project after the first transaction of ``many``, and waits for it."""

    def wrote(self, key: str) -> None:
        if key != "many" or self.committed.count("many") != 1:
            return
        # Hold the turn like the next slice until the other project waits behind it.
        with self.writers.turn("many"):
            self.other.start()
            while not self.writers.waiting:
                self.after_commit.wait(0.001)

    other: threading.Thread


def test_another_project_writes_between_two_slices(tmp_path):
    database, registry = opened(tmp_path, Meeting)
    one = Records(jobs=[JobRecord(job_id="one")])
    database.other = threading.Thread(target=registry.record, args=("other", one, NOW))
    jobs = [JobRecord(job_id=f"j{number}") for number in range(4 * transactions.MOST_ROWS)]
    registry.record("many", Records(jobs=jobs), NOW)
    database.other.join()
    assert database.committed == ["many", "other", "many", "many", "many"]
    registry.close()


def test_keys_take_turns_however_many_writers_each_has():
    queue = WriterQueue()
    order: list[str] = []

    def write(key: str) -> None:
        with queue.turn(key):
            order.append(key)

    writers = []
    with queue.turn("first"):
        for key in ("a", "a", "a", "b", "c", "b"):
            waiting = queue.waiting
            writers.append(threading.Thread(target=write, args=(key,)))
            writers[-1].start()
            while queue.waiting == waiting:
                threading.Event().wait(0.001)
    for writer in writers:
        writer.join()
    assert order == ["a", "b", "c", "a", "b", "a"]
    with queue.turn("again"):
        assert queue.waiting == 0


def test_a_writer_that_fails_lets_the_next_one_write():
    queue = WriterQueue()
    with pytest.raises(ValueError, match="x"), queue.turn("a"):
        raise ValueError("x")
    with queue.turn("b"):
        pass


def random_record(random_: random.Random) -> JobRecord:
    states = [None, None, *JobState]
    start = random_.choice([None, NOW, NOW + 10, NOW + 30])
    end = random_.choice([None, None, NOW + 20, NOW + 40])
    member = ReplicaRecord(
        name=random_.choice("vw"), state=random_.choice([None, JobState.RUNNING, JobState.UNKNOWN]), start=NOW,
        reason=random_.choice(["", "r"]), node=random_.choice(["", "n", "m"]),
    )  # fmt: skip
    return JobRecord(
        job_id=random_.choice("jk"),
        name=random_.choice([None, "a", "b"]),
        user=random_.choice([None, "u"]),
        state=random_.choice(states),
        start=start,
        end=end if start is None or end is None or end >= start else None,
        error=random_.choice([None, "", "e"]),
        exit_code=random_.choice([None, 0, 3]),
        extra=random_.choice([None, {"x": {"k": 1}}, {"x": {"k": None, "l": 2}}]),
        replicas=random_.choice([[], [member]]),
    )


@pytest.mark.parametrize("seed", range(12))
def test_records_together_are_as_records_one_after_the_other(tmp_path, seed):
    random_ = random.Random(seed)
    records = [random_record(random_) for _ in range(12)]
    records = [record for record in records for _ in range(random_.choice([1, 1, 3]))]
    found = []
    for name, parts in (("together", [records]), ("apart", [[record] for record in records])):
        registry = Registry(Database(f"sqlite:///{tmp_path / name}.db"), Retention())
        for part in parts:
            registry.record("p", Records(jobs=part), NOW + 100)
        found.append(everything(registry))
        registry.close()
    assert found[0] == found[1]


def everything(registry: Registry) -> list[object]:
    views = [view for job in "jk" for view in registry.find_job(None, job, NOW + 100)]
    events = registry.list_events(EventFilter(limit=1000)).events
    return [views, sorted(events, key=msgspec.json.encode)]


def test_a_record_of_many_replicas_is_cut_and_says_the_same(tmp_path):
    record = JobRecord(job_id="j", name="n", state=JobState.RUNNING, replicas=[f"w-{n}" for n in range(50)])
    parts = [entry for part in transactions.split([prepare("p", record)], 10) for entry in part]
    assert [entry.values["name"] for entry in parts][:2] == ["n", None]
    assert [replica.name for entry in parts for replica, _ in entry.replicas] == record.replicas
