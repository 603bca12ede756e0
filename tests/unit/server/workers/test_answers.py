"""Tests that a worker's own answers equal the storage process's answers right after every change, and are counted."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.http_wire import run
from tests.support.serving import BASE
from tests.support.waiting import until
from tests.support.workplace import point, working

from jobmeter.model.job import JobState
from jobmeter.model.record import AllocationRecord, JobRecord, NodeRecord, Records, ReplicaRecord
from jobmeter.model.time import HOUR, MINUTE, SECOND
from jobmeter.server.workers.frames import KeyLookup
from jobmeter.server.workers.records import REFUSED_SECONDS

PROMETHEUS = (
    "/prometheus/api/v1/query?query=jobmeter_gpu_utilization_ratio%7Bjob_id%3D%22j1%22%2Cproject%3D%22default%22%7D"
)


def targets(place, job="j1"):
    return place.metrics(job), PROMETHEUS.replace("j1", job), f"/api/v1/jobs/{job}/metrics?MetricType=GpuCoreUsage"


def test_a_worker_answers_live_questions_of_the_api_and_of_dialects(tmp_path):
    async def main():
        async with working(tmp_path / "data") as place:
            await place.write(point(place, 60, 0.5), point(place, 30, 0.75, replica="worker-1", device="1"))
            for target in targets(place):
                own = await place.answers_itself(target)
                assert own is not None, target
                assert own == await place.stored(target)
                assert own[0] == 200

    run(main())


def test_answers_of_a_worker_are_counted_like_other_answers(tmp_path):
    async def main():
        async with working(tmp_path / "data") as place:
            await place.write(point(place, 60, 0.5))
            target = place.metrics()
            assert await place.answers_itself(target)
            await place.counted()
            before, calls = figures(place), usage(place)
            for _ in range(3):
                await place.ask(target)
            assert await place.counted() == before["jobmeter_worker_answers_total"] + 3
            after = figures(place)
            for name in (
                'jobmeter_requests_total{api="native",status="200"}',
                'jobmeter_request_duration_seconds_count{api="native"}',
                "jobmeter_worker_answers_total",
                "jobmeter_query_rows_total",
            ):
                assert after[name] == before[name] + 3, name
            assert usage(place) == calls + 3

    run(main())


def figures(place):
    lines = place.services.telemetry.render().decode().splitlines()
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[0] != "#")}


def usage(place):
    """Return the counted calls of the operation that the targets call."""
    place.services.usage.flush()
    month = place.services.calendar.find_month(place.now_ms).name
    found = place.services.registry.usage.read_calls(month, None)
    return sum(one.calls for one in found if one.operation == "getJobMetrics")


def test_a_key_is_searched_for_again_before_it_expires_in_the_worker(tmp_path):
    async def main():
        async with working(tmp_path / "data") as place:
            await place.write(point(place, 60, 0.5))
            assert await place.answers_itself(place.metrics())
            searched = place.note_searches()
            own = place.own
            for milliseconds in (700, 200, 700):
                place.served.clock.time_ms += milliseconds
                await place.ask(place.metrics())
                await place.settle()
            assert place.own == own + 3
            assert [type(one) for one in searched] == [KeyLookup]

    run(main())


def test_a_session_and_a_wrong_token_are_left_to_the_storage_process(tmp_path):
    async def main():
        async with working(tmp_path / "data") as place:
            await place.write(point(place, 60, 0.5))
            assert await place.answers_itself(place.metrics())
            assert await place.answers_itself(place.metrics(), token="wrong") is None
            assert (await place.ask(place.metrics(), token="wrong"))[0] == 401

    run(main())


def test_a_link_signs_in_and_its_session_reads_through_a_worker(tmp_path):
    async def main():
        async with working(tmp_path / "data") as place:
            await place.write(point(place, 60, 0.5))
            sessions, key = place.services.sessions, place.served.admin.access_key_id
            code, _ = sessions.create_link(key)
            status, body = await place.send("POST", f"{BASE}/session", {"Authorization": f"Link {code}"})
            assert status == 200, body
            value, _ = sessions.begin(key)
            session = {"Cookie": f"jobmeter-session={value}", "Host": "x"}
            for path in ("/whoami", "/jobs", "/jobs/j1", "/findings", "/status", "/keys"):
                status, body = await place.send("GET", BASE + path, session)
                assert status == 200, (path, body)

    run(main())


def test_a_worker_forwards_all_requests_while_the_window_is_closed_or_parts_are_damaged(tmp_path):
    async def main():
        async with working(tmp_path / "data") as place:
            await place.write(point(place, 60, 0.5))
            assert await place.answers_itself(place.metrics())
            window = place.services.store.window
            window.share(0.0)
            assert await place.answers_itself(place.metrics()) is None
            window.share(float("inf"))
            assert await place.answers_itself(place.metrics())
            place.services.store.list_damaged = lambda: ("part",)
            place.served.clock.time_ms += 2 * SECOND  # a key record is valid for one second
            found = place.records.find(KeyLookup(b""))
            assert found is None
            place.services.store.list_damaged = tuple
            place.served.clock.time_ms += round(REFUSED_SECONDS * SECOND)
            assert await place.answers_itself(place.metrics())

    run(main())


def test_unknown_tokens_cost_the_storage_process_no_search(tmp_path):
    async def main():
        async with working(tmp_path / "data") as place:
            await place.write(point(place, 60, 0.5))
            searched = place.note_searches()
            for number in range(5):
                assert (await place.ask(place.metrics(), token=f"unknown-{number}"))[0] == 401
                await until(lambda: not place.answers.is_searching)
            assert searched == []
            assert await place.answers_itself(place.metrics())
            assert [type(about) for about in searched].count(KeyLookup) == 1

    run(main())


def test_a_worker_does_not_search_again_where_a_search_did_not_help(tmp_path):
    """The exporter's series has no job. Its membership in the job depends on the range of each question."""

    async def main():
        async with working(tmp_path / "data") as place:
            exported = point(place, 50, 0.5, job="", replica="", cluster="c", device="gpu0")
            await place.write(point(place, 60, 0.5), exported)
            allocation = AllocationRecord(
                replica="worker-0", node="n1", cluster="c", device="gpu0", start=place.now_ms - MINUTE
            )
            record = JobRecord(job_id="j1", state=JobState.RUNNING, allocations=[allocation])
            nodes = [NodeRecord(name="n1", cluster="c")]
            place.services.registry.record("default", Records(jobs=[record], nodes=nodes), place.now_ms)
            target = place.metrics()
            assert await place.answers_itself(target) is None
            searched = place.note_searches()
            assert await place.answers_itself(target) is None
            assert searched == []

    run(main())


class Change:
    """Changes after which an answer must differ. Each method returns the status of the following answers."""

    def __init__(self, place, key):
        self.place, self.key, self.number = place, key, 0

    async def newer_sample(self):
        self.number += 1
        await self.place.write(point(self.place, 5, self.number / 100))

    async def late_sample(self):
        self.number += 1
        await self.place.write(point(self.place, 200 + self.number, self.number / 100))

    async def other_replica(self):
        self.number += 1
        names = {"replica": f"worker-{self.number}", "device": str(self.number)}
        await self.place.write(point(self.place, 20, 0.5, **names))

    async def end_of_the_job(self):
        self.number += 1
        state = (JobState.SUCCEEDED, JobState.FAILED)[self.number % 2]
        replica = ReplicaRecord(name="worker-0", rank=self.number)
        record = JobRecord(job_id="j1", state=state, end=self.place.now_ms - self.number, replicas=[replica])
        self.place.services.registry.record("default", Records(jobs=[record]), self.place.now_ms)

    async def deletion(self):
        if (await self.place.stored(f"{BASE}/jobs/j1"))[0] == 200:
            await self.place.change("DELETE", "/jobs/j1")

    async def revocation(self):
        await self.place.change("DELETE", f"/keys/{self.key.id}")
        self.key = self.place.reader()

    async def roll_up(self):
        self.place.services.store.roll_up(self.place.now_ms // HOUR * HOUR)

    async def passing_time(self):
        self.place.served.clock.time_ms += MINUTE


CHANGES = [name for name in vars(Change) if not name.startswith("_")]


@settings(max_examples=5, deadline=None)
@given(names=st.lists(st.sampled_from(CHANGES), min_size=3, max_size=6))
def test_the_next_answer_of_a_worker_sees_every_acknowledged_change(names):
    async def main(folder):
        async with working(folder) as place:
            change = Change(place, place.reader())
            await change.newer_sample()
            for name in names:
                for target in targets(place):
                    await place.answers_itself(target, change.key.token)
                former = change.key.token
                await getattr(change, name)()
                for target in targets(place):
                    assert await place.ask(target, former) == await place.stored(target, former), (name, target)
            assert place.own

    with tempfile.TemporaryDirectory() as folder:
        run(main(Path(folder) / "data"))


@pytest.mark.parametrize("name", [name for name in CHANGES if name != "roll_up"])
def test_an_answer_that_a_worker_gave_is_not_repeated_after_a_change(tmp_path, name):
    async def main():
        async with working(tmp_path / "data") as place:
            change = Change(place, place.reader())
            await change.newer_sample()
            token = change.key.token
            before = [await place.answers_itself(target, token) for target in targets(place)]
            assert None not in before
            targets_before = targets(place)
            await getattr(change, name)()
            after = [await place.ask(target, token) for target in targets_before]
            assert after == [await place.stored(target, token) for target in targets_before]
            assert name == "passing_time" or after != before

    run(main())
