"""Tests of rules about lacking or wasted resources: at any interval, with noise, from any moment on."""

import numpy as np
import pytest
from benchmarks.faults.build import START, JobShape
from benchmarks.faults.shortages import NEAR_MISSES, NO_DEVICE, RDMA_LINES, SHORTAGES, SOCKET_LINES
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.support.diagnosed import Sampled
from tests.support.fakes import NOW

from jobmeter.diagnose.examine import examine
from jobmeter.diagnose.registry import list_rules
from jobmeter.diagnose.thresholds import load
from jobmeter.model.batch import SampleBatch
from jobmeter.model.finding import FindingRole, Severity, Subject
from jobmeter.model.job import JobState
from jobmeter.model.log import LogLine
from jobmeter.model.log_query import parse_log_query
from jobmeter.model.log_tree import matches
from jobmeter.model.series import Series
from jobmeter.model.time import MINUTE, SECOND

THRESHOLDS = load()
RULES = {rule.name: rule for rule in list_rules()}
_FAULTS = [(rule, number) for rule, makes in SHORTAGES.items() for number in range(len(makes))]


@st.composite
def shapes(draw):
    """Draw intervals of 5 to 60 s with any phase, jitter, noise, and onset of the fault."""
    interval = draw(st.integers(5, 60)) * SECOND
    replicas = draw(st.sampled_from([4, 7, 16]))
    return JobShape(
        replicas=replicas,
        devices=1 if replicas > 8 else draw(st.integers(1, 4)),
        length=draw(st.integers(90, 150)) * MINUTE,
        interval=max(interval, 20 * SECOND) if replicas > 16 else interval,
        phase=draw(st.integers(0, interval - 1)),
        jitter=draw(st.integers(0, interval // 20)),
        noise=draw(st.floats(0.3, 1.3)),
        profiled=draw(st.booleans()),
        onset=draw(st.sampled_from([0.0, 0.2, 0.5])),
    )


@settings(max_examples=3, deadline=None)
@given(shapes(), st.integers(0, 2**32 - 1))
@pytest.mark.parametrize(("rule", "number"), _FAULTS)
def test_a_shortage_is_named_in_a_sentence_with_figures(rule, number, shape, seed):
    made = SHORTAGES[rule][number](np.random.default_rng(seed), shape)
    own = [one for one in examine(made.case(), THRESHOLDS) if one.rule == rule and one.role is FindingRole.ROOT]
    assert own
    for one in own:
        assert any(character.isdigit() for character in one.sentence)
        assert one.subject.kind == "job" or one.subject.name.partition("/")[0] in one.sentence
        assert one.evidence[0].text
        if one.severity is not Severity.INFO:
            assert one.start >= made.began - 3 * MINUTE


@settings(max_examples=10, deadline=None)
@given(shapes(), st.integers(0, 2**32 - 1), st.booleans())
def test_replicas_that_got_as_much_memory_as_one_of_their_role_needs_have_no_finding(shape, seed, other_role):
    made = SHORTAGES["mem_overrequest"][0](np.random.default_rng(seed), shape)
    name = made.names[seed % len(made.names)]
    limit = made.series["memory.limit", name, ""]
    made.series["memory.usage", name, ""] = 0.5 * limit
    made.series["memory.utilization", name, ""] = np.full(len(limit), 0.5)
    if other_role:
        for key in [key for key in made.series if key[1] == name]:
            made.series[key[0], "chief", key[2]] = made.series.pop(key)
    wasted = {one.rule for one in examine(made.case(), THRESHOLDS)}
    assert wasted == ({"mem_overrequest"} if other_role else set())


@settings(max_examples=3, deadline=None)
@given(shapes(), st.integers(0, 2**32 - 1))
@pytest.mark.parametrize("name", NEAR_MISSES)
def test_a_job_that_comes_near_to_a_shortage_has_no_finding(name, shape, seed):
    assert examine(NEAR_MISSES[name](np.random.default_rng(seed), shape).case(), THRESHOLDS) == []


@settings(max_examples=3, deadline=None)
@given(shapes(), st.integers(0, 2**32 - 1))
@pytest.mark.parametrize(("rule", "number"), [one for one in _FAULTS if RULES[one[0]].running])
def test_a_shortage_is_found_while_the_job_runs(rule, number, shape, seed):
    """The last half hour is sufficient, and the finding is about the same member."""
    made = SHORTAGES[rule][number](np.random.default_rng(seed), shape)
    own = RULES[rule]
    case = made.running_case(START + made.length, int(THRESHOLDS["running"]["window"]), own)
    running = {one.subject for one in examine(case, THRESHOLDS, [own])}
    whole = {one.subject for one in examine(made.case(), THRESHOLDS, [own])}
    assert running
    assert running == whole or Subject("job", "made") in running | whole


@settings(max_examples=5, deadline=None)
@given(shapes(), st.integers(0, 2**32 - 1), st.sampled_from(["gpu.sm.active", "gpu.pcie.width", "gpu.pcie.receive"]))
def test_lanes_are_judged_only_with_their_speed_and_what_waits_for_them(shape, seed, missing):
    made = SHORTAGES["comm_bound"][2](np.random.default_rng(seed), shape)
    ways = {"gpu.pcie.receive", "gpu.pcie.transmit"} if missing == "gpu.pcie.receive" else {missing}
    made.series = {key: value for key, value in made.series.items() if key[0] not in ways}
    assert list(examine(made.case(), THRESHOLDS, [RULES["comm_bound"]])) == []


@pytest.mark.parametrize("wrong", ["more than its speed", "an unknown generation"])
def test_lanes_whose_speed_is_wrong_or_unknown_are_not_judged(wrong):
    made = SHORTAGES["comm_bound"][2](np.random.default_rng(1), JobShape(replicas=2, devices=1))
    metric = "gpu.pcie.width" if wrong == "more than its speed" else "gpu.pcie.generation"
    level = 2.0 if wrong == "more than its speed" else 9.0
    made.series = {key: np.full(len(value), level) if key[0] == metric else value for key, value in made.series.items()}
    assert list(examine(made.case(), THRESHOLDS, [RULES["comm_bound"]])) == []


@pytest.mark.parametrize("seed", range(3))
def test_nvlink_that_stays_loaded_keeps_its_finding_open_and_opens_none(seed):
    """The last half hour contains no other state."""
    made = SHORTAGES["comm_bound"][3](np.random.default_rng(seed), JobShape(replicas=2, devices=2))
    now = START + made.length
    case = made.running_case(now, int(now - made.began - MINUTE), RULES["comm_bound"])
    assert list(examine(case, THRESHOLDS, [RULES["comm_bound"]])) == []
    [*kept] = examine(replace(case, open_rules=frozenset({"comm_bound"})), THRESHOLDS, [RULES["comm_bound"]])
    assert {one.subject.name for one in kept} == {f"node-{name}/{device}" for name, device in made.gpus}


@pytest.mark.parametrize("text", [*NO_DEVICE, *(text for texts in (*SOCKET_LINES, *RDMA_LINES) for text in texts)])
def test_what_nccl_says_of_its_network_is_found_in_a_long_log(text):
    query = parse_log_query(RULES["rdma_fallback"].lines)
    assert query is not None
    for prefix in ("node-1:123:456 [0] NCCL INFO ", "[1,3]<stdout>:node-1:77:78 [3] NCCL INFO "):
        line = LogLine(time_ns=1, text=prefix + text, job="j")
        assert matches(query, line) or text.startswith("P2P plugin")  # without an effect on the decision
    assert not matches(query, LogLine(time_ns=1, text="step 3 of 10, network ok", job="j"))


def measured_on_a_node(rates, state, interval=20, length=60):
    """Return a job of one rank on ``node-0``, whose counters grow at rates, by metric and labels."""
    time = np.arange(NOW - length * MINUTE, NOW, interval * SECOND)
    job = Sampled({("cpu.usage", "worker-0"): (time, np.ones(len(time)))}, NOW - length * MINUTE, state=state)
    series = [Series(metric, "lab", node="node-0", labels=labels) for metric, labels in rates]
    index = np.repeat(np.arange(len(series), dtype=np.uint32), len(time))
    passed = (time - time[0]) / SECOND
    values = np.concatenate([rate * passed for rate in rates.values()])
    job.store.append_all((SampleBatch(series, index, np.tile(time, len(series)), values),))
    return job


@pytest.mark.parametrize("state", [JobState.RUNNING, JobState.SUCCEEDED])
@pytest.mark.parametrize("interval", [5, 20, 60])
def test_what_a_node_counts_is_read_as_rates(interval, state):
    received, sent = ((("direction", way), ("interface", "eth0")) for way in ("receive", "transmit"))
    rates = {
        ("node.network.packets", received): 10_000.0,
        ("node.network.packets", sent): 10_000.0,
        ("node.network.errors", received): 5.0,
        ("node.network.errors", sent): 500.0,
        ("node.swap.out", ()): 5e6,
        ("node.memory.major.faults", ()): 10.0,
    }
    job = measured_on_a_node(rates, state, interval)
    findings = job.findings_while_running() if state is JobState.RUNNING else job.findings()
    own = {one.rule: one for one in findings}
    assert set(own) == {"net_errors", "swap"}
    assert own["net_errors"].subject == Subject("link", "node-0/eth0")
    assert "4.8 % of the packets sent are lost to errors" in own["net_errors"].sentence
    assert "node-0 (worker-0) writes to swap" in own["swap"].sentence
    assert "4.8 MiB/s" in own["swap"].sentence


def test_series_of_single_cpus_are_too_many_to_be_read():
    labels = ((("cpu", "0"), ("mode", "user")), (("mode", "user"),))
    job = measured_on_a_node({("node.cpu.time", one): 1.0 for one in labels}, JobState.SUCCEEDED)
    [signal] = job.case.nodes["node.cpu.time"]
    assert (signal.node, signal.part) == ("node-0", "user")
