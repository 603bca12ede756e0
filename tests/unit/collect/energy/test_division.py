"""Tests of the division of energy: jobs and the rest sum to the measured energy, across resets and pauses."""

from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobmeter.collect.base import NodeIdentity, Owner
from jobmeter.collect.energy.divide import EnergyDivision, divide_energy
from jobmeter.collect.energy.sources import EnergyReading, EnergyTotal
from jobmeter.collect.registry import JobCollectors
from jobmeter.model.sample import Sample

PLACE = NodeIdentity("n1")
JOBS = [Owner(name, "worker-0") for name in "abc"]
CORES, MEMORY = 16.0, 1000.0


class Node:
    """Node with two packages, memory, the whole machine and two GPUs, running randomly drawn jobs."""

    def __init__(self, state=None):
        self.claims: dict[str, list[tuple[Owner, float]]] = {}
        self.division = EnergyDivision(PLACE, lambda: self.claims, state)
        self.now_ms = 1_795_000_000_000
        self.raw = defaultdict(float)
        self.registers: defaultdict[tuple[str, str], EnergyTotal] = defaultdict(EnergyTotal)
        self.busy = 0.0
        self.cpu = defaultdict(float)
        self.new = set()

    def tick(self, seconds, energy, jobs, claims=None, used=None):
        """Advance one tick.

        ``energy``: joules since the last tick by (kind, source) or device. ``jobs``: cores, limit, memory, limit.
        ``used``: share of time of each owner by device. The counters of RAPL wrap at ``RANGE`` joules.
        """
        self.now_ms += round(seconds * 1000)
        self.claims = claims or {}
        samples = []

        def add(series, value, at=None):
            samples.append(Sample(series, at or self.now_ms, float(value)))

        for key, joules in energy.items():
            self.raw[key] += joules
            if isinstance(key, str):
                add(PLACE.make_device_series("gpu.energy", key), self.raw[key])
                continue
            total: float | None = self.raw[key]
            if key[1].startswith("rapl/"):
                reading = EnergyReading(key[0], key[1], self.raw[key] % RANGE, RANGE)
                total = self.registers[key].update(reading, self.now_ms * 1_000_000)
            if total is not None:
                add(PLACE.make_node_series("node.energy", (("kind", key[0]), ("source", key[1]))), total)
        for (device, owner), share in (used or {}).items():
            add(PLACE.make_device_series("gpu.process.utilization", device, owner), share)
        self.busy += sum(job[0] for job in jobs.values()) * seconds
        add(PLACE.make_node_series("node.cpu.time", (("mode", "user"),)), self.busy)
        add(PLACE.make_node_series("node.cpu.time", (("mode", "idle"),)), 10**9)
        add(PLACE.make_node_series("node.cpu.count"), CORES)
        add(PLACE.make_node_series("node.memory.total"), MEMORY)
        add(PLACE.make_node_series("node.memory.available"), MEMORY / 2)
        for owner, (cores, limit, memory, most) in jobs.items():
            if owner not in self.cpu:
                add(PLACE.make_replica_series("cpu.time", owner), 0, self.now_ms - 1)
            self.cpu[owner] += cores * seconds
            add(PLACE.make_replica_series("cpu.time", owner), self.cpu[owner])
            add(PLACE.make_replica_series("cpu.limit", owner), limit)
            add(PLACE.make_replica_series("memory.usage", owner), memory)
            add(PLACE.make_replica_series("memory.limit", owner), most)
        return {
            (one.series.metric, *(value for _, value in one.series.labels), one.series.job): one.value
            for one in self.division.divide(samples)
            if one.time_ms == self.now_ms
        }


fractions = st.floats(0, 1.5, allow_subnormal=False)
job = st.tuples(st.floats(0, 8), st.floats(0.1, 32), st.floats(0, 800), st.floats(1, 2000))
joules = st.floats(0, 1e6, allow_subnormal=False)
watts = st.floats(0, 999, allow_subnormal=False)
holders = st.lists(st.sampled_from(JOBS), min_size=1, unique=True)
HALVES = {"gpu0": 1.0, "gpu1:0": 0.5, "gpu1:1": 0.5}
"""Part of the whole device that each claimed device is."""
SOURCES = [("cpu", "rapl/package-0"), ("cpu", "rapl/package-1"), ("memory", "rapl/dram-0"), ("node", "ipmi")]


@given(
    joules,
    st.floats(-10, 2e6),
    st.dictionaries(st.sampled_from(JOBS), fractions),
    st.dictionaries(st.sampled_from(JOBS), fractions),
)
def test_no_more_energy_is_divided_than_was_measured(amount, at_rest, allocated, used):
    shares = divide_energy(amount, at_rest, allocated, used)
    assert sum(shares.values()) <= amount * (1 + 1e-9)
    assert all(share >= 0 for share in shares.values())
    if sum(allocated.values()) >= 1 and sum(used.values()) >= 1:
        assert sum(shares.values()) == pytest.approx(amount)


RANGE = 262_143.328850
"""Joules at which a counter of RAPL wraps to 0."""
LONGEST_S = RANGE / 1000
"""Pause in seconds after which a counter of RAPL may have wrapped more than once, at 1 kW."""
PARTS: dict[str, list[Any]] = {"cpu": SOURCES[:2], "memory": SOURCES[2:3], "gpu0": ["gpu0"], "gpu1": ["gpu1"]}


class Expected:
    """Measured energy by kind, computed only from the counters."""

    def __init__(self):
        self.measured = defaultdict(float)
        self.last = {}
        self.parts = 0.0
        self.known: dict[Any, float] = {}
        self.read_ms: dict[Any, int] = {}

    def add(self, node, energy):
        """Add a tick. RAPL's energy is unknown for a pause in which the counter may have wrapped twice."""
        raw = {**node.raw}
        for key in energy.keys() & set(SOURCES[:3]):
            pause = (node.now_ms - self.read_ms.get(key, node.now_ms)) / 1000
            more = energy[key] if key in self.known and pause < LONGEST_S else 0.0
            raw[key] = self.known[key] = self.known.get(key, 0.0) + more
            self.read_ms[key] = node.now_ms
        for part, keys in PARTS.items():
            if energy.keys() >= set(keys):
                more = self.grown(part, sum(raw[key] for key in keys))
                self.measured[part.rstrip("01")] += more or 0.0
                self.parts += more or 0.0
        if SOURCES[3] in energy:
            more = self.grown("whole", raw[SOURCES[3]])
            self.measured["rest"] += 0.0 if more is None else max(more - self.parts, 0.0)
            self.parts = 0.0

    def grown(self, name, now):
        before = self.last.get(name)
        self.last[name] = now
        return None if before is None else now - before if now >= before else now


@given(st.data())
def test_energy_of_jobs_and_of_no_job_adds_up_to_the_measured_energy(data):
    """Pauses have any length. Jobs come, go and share devices. Counters are absent, wrap or restart."""
    node, expected = Node(), Expected()
    given: dict[str, float] = defaultdict(float)
    given_before: dict[tuple[str, ...], float] = {}
    seen_ms: dict[tuple[str, ...], int] = {}
    for _ in range(data.draw(st.integers(2, 8))):
        seconds = data.draw(st.floats(0.5, 400))
        jobs = data.draw(st.dictionaries(st.sampled_from(JOBS), job))
        parts = data.draw(st.sets(st.sampled_from([*PARTS, "whole"])))
        keys = [key for part in sorted(parts) for key in PARTS.get(part, SOURCES[3:])]
        since = {key: (node.now_ms - expected.read_ms.get(key, node.now_ms)) / 1000 + seconds for key in keys}
        energy = {key: data.draw(joules) if isinstance(key, str) else data.draw(watts) * since[key] for key in keys}
        for key in energy.keys() & {"gpu0", "gpu1"}:
            if data.draw(st.booleans()):
                node.raw[key] = 0.0  # its driver was reloaded
        held = data.draw(st.dictionaries(st.sampled_from([*HALVES]), holders))
        claims = {device: [(owner, HALVES[device]) for owner in owners] for device, owners in held.items()}
        used = {
            (device, owner): share
            for device, owners in claims.items()
            for owner, _ in owners
            if (share := data.draw(st.none() | fractions)) is not None
        }
        found = node.tick(seconds, energy, jobs, claims, used)
        expected.add(node, energy)
        for (metric, *rest), value in found.items():
            kind = rest[0] if metric == "node.energy.unattributed" else metric.removeprefix("energy.")
            if metric.startswith(("energy.", "node.energy.unattributed")) and kind != "total":
                before = given_before.get((metric, *rest), 0.0)
                given[kind] += value - before
                given_before[metric, *rest] = value
                seen_ms[metric, *rest] = node.now_ms
        # Energy of a job that has been gone for ten minutes restarts at 0.
        for key in [key for key, at in seen_ms.items() if key[0].startswith("energy.") and node.now_ms - at > 600_000]:
            del seen_ms[key], given_before[key]
    for kind in ("cpu", "memory", "gpu", "rest"):
        assert given[kind] == pytest.approx(expected.measured[kind], rel=1e-6, abs=1e-3)


def test_jobs_get_all_measured_energy_while_they_all_run(tmp_path):
    node = Node(tmp_path)
    jobs = {JOBS[0]: (4, 8, 200, 500), JOBS[1]: (2, 4, 100, 250)}
    claims = {"gpu0": [(JOBS[0], 1.0)]}
    energy = {SOURCES[0]: 900, SOURCES[1]: 100, SOURCES[2]: 50, SOURCES[3]: 3000, "gpu0": 700, "gpu1": 80}
    node.tick(10, energy, jobs, claims)
    for turn in range(1, 5):
        found = node.tick(10, energy, jobs, claims)
        kinds = {"cpu": 1000, "memory": 50, "gpu": 780, "rest": 3000 - 1000 - 50 - 780}
        for kind, each in kinds.items():
            of_jobs = sum(found.get((f"energy.{kind}", owner.job), 0.0) for owner in JOBS)
            assert of_jobs + found["node.energy.unattributed", kind, ""] == pytest.approx(each * turn)
        assert found["energy.gpu", "a"] == pytest.approx(700 * turn)
        assert ("energy.gpu", "b") not in found
        # All busy CPU time belonged to the jobs, 2 to 1.
        assert found["energy.cpu", "a"] == pytest.approx(1000 * turn * 2 / 3)
        assert found["energy.total", "b"] == sum(found["energy." + kind, "b"] for kind in ("cpu", "memory", "rest"))


def test_power_at_rest_is_divided_by_allocation(tmp_path):
    node = Node(tmp_path)
    for _ in range(40):
        node.tick(10, {SOURCES[0]: 1000}, {})
    jobs = {JOBS[0]: (0, 8, 0, 1), JOBS[1]: (2, 4, 0, 1)}
    before = node.tick(10, {SOURCES[0]: 1000}, jobs)
    assert before["node.power.idle", "cpu", ""] == 100
    after = node.tick(10, {SOURCES[0]: 1600}, jobs)
    grown = {job: after["energy.cpu", job] - before["energy.cpu", job] for job in "ab"}
    assert grown["a"] == pytest.approx(1000 * 8 / 16)  # the job computes nothing and has half of the cores
    assert grown["b"] == pytest.approx(1000 * 4 / 16 + 600)
    rest = after["node.energy.unattributed", "cpu", ""] - before["node.energy.unattributed", "cpu", ""]
    assert rest == pytest.approx(1000 * 4 / 16)


def test_a_node_without_a_source_has_no_energy():
    node = Node()
    for _ in range(3):
        assert node.tick(10, {}, {JOBS[0]: (1, 1, 1, 1)}) == {}


def test_counters_go_on_after_a_restart(tmp_path):
    jobs = {JOBS[0]: (4, 8, 200, 500)}
    node = Node(tmp_path)
    node.tick(10, {SOURCES[0]: 500}, jobs)
    before = node.tick(10, {SOURCES[0]: 500}, jobs)
    again = Node(tmp_path)
    again.now_ms = node.now_ms
    again.tick(10, {SOURCES[0]: 500}, jobs)
    after = again.tick(10, {SOURCES[0]: 500}, jobs)
    assert after["energy.cpu", "a"] == pytest.approx(before["energy.cpu", "a"] + 500)


def test_partitions_count_with_their_slices():
    node = Node()
    claims = {"gpu0:1": [(JOBS[0], 0.75)], "gpu0:2": [(JOBS[1], 0.25)]}
    jobs = {JOBS[0]: (0, 1, 0, 1), JOBS[1]: (0, 1, 0, 1)}
    node.tick(10, {"gpu0": 100}, jobs, claims)
    found = node.tick(10, {"gpu0": 100}, jobs, claims)
    assert (found["energy.gpu", "a"], found["energy.gpu", "b"]) == (75, 25)


def test_claims_have_the_slices_of_partitions():
    """Claims name devices that are present, and owners with the project of their samples."""
    owner = Owner("a", "worker-0", 1, "p")
    holders = {"gpu0:1": [owner], "gpu0:2": [owner, JOBS[1]], "gpu1": [owner], "gpu2:1": [owner], "gpu7": [owner]}
    slices = {"gpu0": {}, "gpu0:1": {"slices": 3}, "gpu0:2": {"slices": 1}, "gpu1": {}, "gpu2:1": {"slices": 0}}
    devices = [SimpleNamespace(index=index, details=slices[name]) for index, name in enumerate(slices)]
    vendor: Any = SimpleNamespace(
        devices=devices, device_name=list(slices).__getitem__, allocations=SimpleNamespace(holders=holders)
    )
    unused: Any = None
    mine = Owner("a", "worker-0", 1)
    assert JobCollectors(unused, unused, [vendor]).list_claims() == {
        "gpu0:1": [(mine, 0.75)],
        "gpu0:2": [(mine, 0.25), (JOBS[1], 0.25)],
        "gpu1": [(mine, 1.0)],
        "gpu2:1": [(mine, 1.0)],
    }


def test_a_shared_device_counts_by_the_time_of_its_processes():
    node = Node()
    claims = {"gpu0": [(JOBS[0], 1.0), (JOBS[1], 1.0)]}
    more = [
        Sample(PLACE.make_device_series("gpu.process.utilization", "gpu0", owner), 0, share)
        for owner, share in ((JOBS[0], 0.6), (JOBS[1], 0.2))
    ]
    samples = [Sample(PLACE.make_device_series("gpu.energy", "gpu0"), 1_000, 0.0), *more]
    node.claims = claims
    node.division.divide(samples)
    samples = [
        Sample(PLACE.make_device_series("gpu.energy", "gpu0"), 11_000, 100.0),
        Sample(PLACE.make_device_series("gpu.utilization", "gpu0"), 11_000, 1.0),
        *more,
    ]
    found = {(one.series.metric, one.series.job): one.value for one in node.division.divide(samples)}
    assert found["energy.gpu", "a"] == pytest.approx(60)
    assert found["energy.gpu", "b"] == pytest.approx(20)
    assert found["node.energy.unattributed", ""] == pytest.approx(20)  # a process without a job


def test_a_source_that_is_absent_for_a_tick_charges_nobody_with_its_past():
    node = Node()
    jobs = {JOBS[0]: (4, 8, 200, 500)}
    both = {SOURCES[0]: 1000, SOURCES[1]: 500}
    for _ in range(10):
        node.tick(10, both, jobs)
    one = node.tick(10, {SOURCES[0]: 1000}, jobs)
    assert one["energy.cpu", "a"] == pytest.approx(9 * 1500 + 1000)
    back = node.tick(10, {SOURCES[0]: 1000, SOURCES[1]: 1000}, jobs)
    assert back["energy.cpu", "a"] == pytest.approx(11 * 1500)


def test_another_family_of_sources_does_not_stand_in_for_one_that_is_absent():
    """Cray's counters are missing during a change, and RAPL's counters started at another time."""
    node = Node()
    jobs = {JOBS[0]: (4, 8, 200, 500)}
    energy = {("cpu", "rapl/package-0"): 7000, ("node", "rapl/psys"): 9000}
    cray = {("cpu", "cray/cpu"): 100, ("node", "cray/energy"): 300}
    node.tick(10, energy, jobs)
    node.tick(10, energy | cray, jobs)
    node.tick(10, energy | cray, jobs)
    before = node.tick(10, energy | cray, jobs)
    node.tick(10, energy, jobs)
    after = node.tick(10, energy | {key: 2 * joules for key, joules in cray.items()}, jobs)
    grown = {kind: after[f"energy.{kind}", "a"] - before[f"energy.{kind}", "a"] for kind in ("cpu", "rest")}
    assert grown == {"cpu": pytest.approx(200), "rest": pytest.approx(400)}


def test_counters_of_the_machine_do_not_replace_devices_that_miss_a_tick():
    node = Node()
    jobs = {JOBS[0]: (4, 8, 200, 500)}
    energy = {("accelerator", "cray/accel0"): 500, ("node", "cray/energy"): 900}
    node.tick(10, energy, jobs)  # the device driver is still starting
    claims = {"gpu0": [(JOBS[0], 1.0)]}
    node.tick(10, energy | {"gpu0": 500}, jobs, claims)
    before = node.tick(10, energy | {"gpu0": 500}, jobs, claims)
    missed = node.tick(10, energy, jobs, claims)
    assert total(missed, "rest") - total(before, "rest") == pytest.approx(900)
    after = node.tick(10, energy | {"gpu0": 1000}, jobs, claims)
    assert total(after, "gpu") - total(before, "gpu") == pytest.approx(1000)


def total(found, kind):
    """Return the energy of a kind, summed over the jobs and the rest."""
    return sum(
        value
        for (metric, *rest), value in found.items()
        if metric == f"energy.{kind}" or (metric == "node.energy.unattributed" and rest[0] == kind)
    )


def test_a_job_has_no_energy_from_before_its_start():
    """The whole node is read once a minute, and a device may be silent for hours."""
    node = Node()
    one = {JOBS[0]: (4, 4, 400, 800)}
    other = {JOBS[1]: (4, 4, 400, 800)}
    node.tick(10, {SOURCES[3]: 0, "gpu0": 0}, one, {"gpu0": [(JOBS[0], 1.0)]})
    for _ in range(5):
        node.tick(10, {}, one, {"gpu0": [(JOBS[0], 1.0)]})
    found = node.tick(10, {SOURCES[3]: 6600, "gpu0": 600}, other, {"gpu0": [(JOBS[1], 1.0)]})
    assert found["energy.gpu", "b"] == pytest.approx(100)
    assert found["energy.rest", "b"] == pytest.approx(1000)
    assert total(found, "rest") == pytest.approx(6000)


def test_a_replica_without_cpu_time_has_no_energy():
    node = Node()
    energy = {SOURCES[2]: 100}
    node.tick(10, energy, {})
    samples = [
        Sample(
            PLACE.make_node_series("node.energy", (("kind", "memory"), ("source", "rapl/dram-0"))),
            node.now_ms + 10_000,
            500.0,
        ),
        Sample(PLACE.make_node_series("node.memory.total"), node.now_ms + 10_000, MEMORY),
        Sample(PLACE.make_replica_series("memory.usage", JOBS[0]), node.now_ms + 10_000, 10.0),
    ]
    node.division.divide(samples)
    node.now_ms += 10_000
    assert JOBS[0] not in node.division.totals
