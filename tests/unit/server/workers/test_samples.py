"""Tests that a worker and the storage process treat samples alike: storage, receipt, counts, refusals."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.frames import FRAMES, records, row, samples
from tests.support.http_wire import run
from tests.support.serving import BASE
from tests.support.workplace import working

from jobmeter.model.time import DAY, SECOND

TARGET = f"{BASE}/ingest"


def body_of(place, number, job="j1", count=3, ago_s=60, project=""):
    """Return a body with samples of one replica at several times."""
    at = [(place.now_ms - ago_s * SECOND + k * SECOND, float(number + k)) for k in range(count)]
    return samples([row("app.loss", at, job=job, project=project)])


async def ingest(place, body, key=None, worker=0, **headers):
    """Return the status and the parsed answer of a worker, and True if the worker answered itself."""
    token = (key or place.served.admin).token
    sent = {"Authorization": f"Bearer {token}", "Content-Type": FRAMES, **headers}
    before = place.own
    status, answer = await place.send("POST", TARGET, sent, body, worker)
    await place.settle()
    return status, json.loads(answer) if status == 200 else answer, place.own > before


async def warm(place, body, key=None):
    """Send a body until the worker has the key, and the storage process the list of series."""
    for _ in range(4):
        await ingest(place, body, key)


async def values(place, job="j1"):
    span = f"start={place.now_ms - 10 * 60 * SECOND}&end={place.now_ms + SECOND}"
    _, body = await place.stored(f"{BASE}/jobs/{job}/metrics?metric=app.loss&{span}&step=1s&statistic=last")
    return [value for line in json.loads(body)["lines"] for _, value in line["points"] if value is not None]


def test_a_worker_reads_a_body_of_listed_series_and_the_storage_process_stores_the_samples(tmp_path):
    async def main():
        async with working(tmp_path / "data") as place:
            await warm(place, body_of(place, 0))
            status, answer, own = await ingest(place, body_of(place, 10))
            assert (status, own) == (200, True)
            assert (answer["accepted"], answer["records"], answer["rejected"]) == (3, 0, {})
            assert await values(place) == [10.0, 11.0, 12.0]

    run(main())


def test_new_series_records_and_invalid_bodies_are_forwarded_and_answered_alike(tmp_path):
    async def main():
        async with working(tmp_path / "data") as place:
            known = body_of(place, 0)
            await warm(place, known)
            for body in (
                body_of(place, 5, job="other"),
                records({"jobs": [{"id": "j1", "state": "Running"}]}),
                known[:-1],
                b"JM",
                known[:20] + bytes([known[20] ^ 1]) + known[21:],
                samples([row("gpu.utilization", [(place.now_ms, 7.0)], job="j1")]),
            ):
                status, answer, own = await ingest(place, body)
                assert not own
                headers = {"Authorization": f"Bearer {place.served.admin.token}", "Content-Type": FRAMES}
                expected, stored = await place.send("POST", TARGET, headers, body, None)
                assert (status, answer) == (expected, json.loads(stored) if expected == 200 else stored)
            for headers in ({"Content-Type": "application/json"}, {"Content-Encoding": "gzip"}):
                status, _, own = await ingest(place, known, **headers)
                assert (status, own) == (400, False)

    run(main())


def test_samples_out_of_the_stored_time_are_counted_and_left_out(tmp_path):
    async def main():
        async with working(tmp_path / "data") as place:
            await warm(place, body_of(place, 0))
            status, answer, own = await ingest(place, body_of(place, 0, ago_s=20 * DAY // SECOND))
            assert (status, answer["accepted"], answer["rejected"], own) == (200, 0, {"expired": 3}, False)
            day = DAY // SECOND
            status, answer, own = await ingest(place, body_of(place, 0, ago_s=15 * day + 1))
            assert (status, answer["accepted"], answer["rejected"], own) == (200, 2, {"expired": 1}, True)

    run(main())


def test_stored_samples_are_counted_once(tmp_path):
    async def main():
        async with working(tmp_path / "data") as place:
            await warm(place, body_of(place, 0))
            before = ingested(place)
            for number in range(4):
                assert (await ingest(place, body_of(place, number)))[2]
            assert ingested(place) == before + 12

    run(main())


def ingested(place):
    lines = place.services.telemetry.render().decode().splitlines()
    return sum(
        float(line.rpartition(" ")[2]) for line in lines if line.startswith("jobmeter_ingest_samples_accepted_total")
    )


def test_a_key_may_write_its_own_project_only_and_not_after_its_revocation(tmp_path):
    async def main():
        async with working(tmp_path / "data") as place:
            writer, reader = place.served.key("writer", "mine"), place.served.key("reader", "mine")
            mine, foreign = body_of(place, 0), body_of(place, 0, project="other")
            await warm(place, mine, writer)
            assert (await ingest(place, mine, writer))[2]
            await warm(place, foreign)
            assert (await ingest(place, foreign))[2]
            status, _, own = await ingest(place, foreign, writer)
            assert (status, own) == (403, False)
            for _ in range(4):
                status, _, own = await ingest(place, mine, reader)
                assert (status, own) == (403, False)
            await place.change("DELETE", f"/keys/{writer.id}")
            status, _, own = await ingest(place, mine, writer)
            assert (status, own) == (401, False)

    run(main())


def test_a_key_is_searched_for_after_a_question_that_memory_cannot_answer(tmp_path):
    async def main():
        async with working(tmp_path / "data") as place:
            await warm(place, body_of(place, 0))
            assert (await place.ask(f"{BASE}/jobs/none/metrics?metric=app.loss"))[0] == 404
            writer, body = place.served.key("writer"), body_of(place, 3)
            assert [(await ingest(place, body, writer))[2] for _ in range(2)] == [False, True]

    run(main())


def test_a_limited_rate_is_counted_by_the_storage_process(tmp_path):
    async def main():
        async with working(tmp_path / "data", rate_limits="ingest=1:3") as place:
            statuses = [(await ingest(place, body_of(place, number)))[::2] for number in range(5)]
            assert statuses == [(200, False)] * 3 + [(429, False)] * 2

    run(main())


def test_a_list_of_series_that_is_no_longer_cached_is_sent_again(tmp_path):
    async def main():
        async with working(tmp_path / "data") as place:
            await warm(place, body_of(place, 0))
            place.services.pipeline.senders.series_table.generation += 1
            status, answer, own = await ingest(place, body_of(place, 3))
            assert (status, answer["accepted"], own) == (200, 3, False)
            assert (await ingest(place, body_of(place, 6)))[2]
            assert await values(place) == [6.0, 7.0, 8.0]

    run(main())


@settings(max_examples=15, deadline=None)
@given(
    rows=st.lists(
        st.tuples(st.sampled_from(["a", "b", "c"]), st.integers(0, 40), st.floats(-1e6, 1e6)), min_size=1, max_size=40
    )
)
def test_random_bodies_are_stored_as_by_the_storage_process(tmp_path_factory, rows):
    async def main():
        folder = tmp_path_factory.mktemp("data")
        async with working(folder / "data") as place:
            start = place.now_ms // SECOND * SECOND - 100 * SECOND
            own = False
            for job, worker in (("w", 0), ("s", None)):
                frames = [
                    row("app.loss", [(start + at * SECOND, value)], job=job, replica=name) for name, at, value in rows
                ]
                body = samples(frames)
                for _ in range(4):
                    status, _, own = await ingest(place, body, worker=worker)
                    assert status == 200
                assert own == (worker == 0)
            assert await values(place, "w") == await values(place, "s")

    run(main())
