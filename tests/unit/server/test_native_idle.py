"""Tests of the idle time of a job's devices and of its cost, against values counted by hand."""

from urllib.parse import urlencode

import pytest
from tests.support.fakes import NOW
from tests.support.frames import samples
from tests.support.serving import serving

from jobmeter.diagnose.thresholds import load
from jobmeter.model.time import DAY, HOUR, MINUTE
from jobmeter.query.idle import HOLD_MS, IDLE

PRICES = "[devices]\nH200 = 2.5\n"
START = NOW - 2 * HOUR
IDS = ("gpu0", "gpu1", "gpu2", "gpu3")


@pytest.fixture
def server(tmp_path):
    prices = tmp_path / "prices.toml"
    prices.write_text(PRICES)
    made = serving(tmp_path / "data", prices=str(prices))
    yield made
    made.application.close()


def used(device, value, first=0, last=120, metric="gpu.utilization"):
    """Return a device's utilization every 15 seconds, from one minute of the job to another."""
    times = range(START + first * MINUTE, START + last * MINUTE, 15_000)
    return {"metric": metric, "job": "train", "replica": "worker-0", "node": "n1", "device": device}, [
        (at, value((at - START) / MINUTE)) for at in times
    ]


def fill(server, lines, name="NVIDIA H200", devices=IDS, **more):
    info = {"devices": [{"device": device, "name": name} for device in devices]}
    replica = {"name": "worker-0", "node": "n1", "devices": list(devices)}
    job = {"job_id": "train", "state": "Succeeded", "start": START, "end": NOW, "replicas": [replica], **more}
    assert server.call("POST", "/jobs", {"nodes": [{"name": "n1", "info": info}], "jobs": [job]}).status == 200
    if lines:
        assert server.ingest(samples(lines)).status == 200


def asked(server, **more):
    answer = server.call("GET", "/jobs/train/idle", **more)
    assert answer.status == 200, answer.body
    return answer.json()


def test_what_is_idle_for_long_is_counted_and_priced_and_what_is_unmeasured_is_neither(server):
    fill(
        server,
        [
            used("gpu0", lambda minute: 0.9),
            used("gpu1", lambda minute: 0.9 if minute < 60 else 0.0),
            # Idle too, but each time for less than a quarter of an hour.
            used("gpu2", lambda minute: 0.9 if minute % 20 < 10 else 0.0),
        ],
    )
    body = asked(server)
    idle = {one["device"]: one["idle"] for one in body["devices"]}
    assert idle == {"gpu0": 0.0, "gpu1": pytest.approx(3600, abs=60), "gpu2": 0.0, "gpu3": None}
    assert body["idle"] == idle["gpu1"]
    assert body["cost"] == pytest.approx(2.5, abs=0.05)
    assert body["allocated"] == pytest.approx(4 * 7200, abs=1)
    assert body["measured"] == pytest.approx(3 * 7200, abs=60)
    assert (body["currency"], body["unpriced"]) == ("CNY", 0)
    assert body["devices"][1]["price_hour"] == 2.5


def test_a_device_without_utilization_is_idle_by_its_multiprocessors(server):
    """A MIG instance has no utilization. A device with both values is idle while both are."""
    active = [used(one, lambda minute: 0.5 if minute < 60 else 0.0, metric="gpu.sm.active") for one in IDS[:2]]
    fill(server, [*active, used("gpu1", lambda minute: 0.0)], devices=IDS[:2])
    assert [one["idle"] for one in asked(server)["devices"]] == pytest.approx([3600, 3600], abs=60)


def test_a_gap_ends_what_was_idle_and_is_not_idle_itself(server):
    fill(server, [used("gpu0", lambda minute: 0.0, 0, 30), used("gpu0", lambda minute: 0.0, 90, 120)], devices=["gpu0"])
    body = asked(server)
    assert body["idle"] == pytest.approx(3600, abs=120)
    assert body["measured"] == pytest.approx(3600, abs=120)
    assert body["allocated"] == pytest.approx(7200, abs=1)


def test_one_busy_sample_ends_it(server):
    fill(server, [used("gpu0", lambda minute: 0.5 if minute % 15 == 0 else 0.0)], devices=["gpu0"])
    assert asked(server)["idle"] == 0


def test_without_a_price_there_is_no_cost_and_idle_time_that_has_none_is_named(server):
    fill(server, [used("gpu0", lambda minute: 0.0)], name="Other", devices=["gpu0"])
    body = asked(server)
    assert body["idle"] == pytest.approx(7200, abs=1)
    assert body["cost"] is None
    assert body["unpriced"] == body["idle"]
    assert body["devices"][0]["price_hour"] is None


def test_a_job_without_devices_and_one_that_nobody_measured_have_no_idle_time(server):
    fill(server, [], devices=[])
    body = asked(server)
    assert (body["devices"], body["idle"], body["cost"]) == ([], None, None)
    fill(server, [])
    body = asked(server)
    assert (len(body["devices"]), body["idle"], body["cost"]) == (4, None, None)


def test_a_running_job_is_reported_up_to_now(server):
    fill(server, [used("gpu0", lambda minute: 0.0)], devices=["gpu0"], state="Running", end=None)
    assert asked(server)["idle"] == pytest.approx(7200, abs=1)


def test_a_share_link_shows_idle_time_without_prices(server):
    fill(server, [used("gpu0", lambda minute: 0.0)], devices=["gpu0"])
    token = server.call("POST", "/jobs/train/links", {}).json()["token"]
    body = asked(server, headers={"Authorization": f"Bearer {token}"})
    assert body["idle"] == pytest.approx(7200, abs=1)
    assert body["cost"] is None
    assert body["devices"][0]["price_hour"] is None
    stranger = server.call("GET", "/jobs/train/idle", key=server.key("reader", "p2"))
    assert stranger.status == 404


def test_it_is_what_the_rule_counts():
    numbers = load()["gpu_idle_allocated"]
    assert (numbers["idle"], numbers["hold"]) == (IDLE, HOLD_MS)


def hours(server, **parameters):
    answer = server.call("GET", "/devices/hours?" + urlencode(parameters))
    assert answer.status == 200, answer.body
    return answer.json()


def test_device_hours_of_a_job_are_in_each_period_with_their_cost(server):
    fill(server, [used("gpu0", lambda minute: 0.9), used("gpu1", lambda minute: 0.9 if minute < 60 else 0.0)])
    job, body = asked(server), hours(server, by="user", every="1h", since="3h")
    (group,) = body["groups"]
    assert (group["name"], group["jobs"], body["every"], body["by"]) == ("", 1, HOUR, "user")
    total = group["total"]
    # The last millisecond of a job lies after the end of the range, which is now.
    assert total["allocated"] == pytest.approx(job["allocated"], abs=0.01)
    assert (total["idle"], total["used"]) == (job["idle"], job["measured"] - job["idle"])
    assert total["cost"] == pytest.approx(job["cost"], abs=0.005)
    for name in ("allocated", "used", "idle", "cost", "unpriced"):
        assert sum(one[name] or 0 for one in group["buckets"]) == pytest.approx(total[name])
    starts = [one["start"] for one in group["buckets"]]
    assert (starts[0], body["end"]) == (NOW - 3 * HOUR, NOW)
    assert all(start % HOUR == 0 for start in starts[1:])


def test_device_hours_without_samples_are_allocated_and_neither_used_nor_idle(server):
    fill(server, [])
    (group,) = hours(server, every="1d")["groups"]
    assert group["total"]["allocated"] == pytest.approx(4 * 7200, abs=0.01)
    assert [group["total"][name] for name in ("used", "idle", "cost")] == [None, None, None]


def test_idle_device_hours_without_a_price_are_named(server):
    fill(server, [used("gpu0", lambda minute: 0.0)], name="Other", devices=["gpu0"])
    total = hours(server)["groups"][0]["total"]
    assert (total["cost"], total["unpriced"]) == (None, total["idle"])


@pytest.mark.parametrize(
    ("since", "every"), [("2d", HOUR), ("49h", DAY), ("30d", DAY), ("62d", DAY), ("63d", 7 * DAY), ("7w", DAY)]
)
def test_the_length_of_the_range_chooses_the_buckets(server, since, every):
    assert hours(server, since=since)["every"] == every


@pytest.mark.parametrize(
    ("parameters", "field"),
    [({"every": "5m"}, "every"), ({"by": "node"}, "by"), ({"every": "1h", "since": "30d"}, "every")],
)
def test_invalid_questions_about_device_hours_are_refused(server, parameters, field):
    answer = server.call("GET", "/devices/hours?" + urlencode(parameters))
    assert answer.status == 400
    assert answer.json()["error"]["field"] == field


def test_device_hours_count_only_projects_that_the_key_may_read(server):
    fill(server, [])
    assert server.call("GET", "/devices/hours", key=server.key("reader", "p2")).json()["groups"] == []
    token = server.call("POST", "/jobs/train/links", {}).json()["token"]
    answer = server.call("GET", "/devices/hours", headers={"Authorization": f"Bearer {token}"})
    assert answer.status == 403
