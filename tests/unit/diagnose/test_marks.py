"""Tests of marked ranks in maps and lists: exactly the ranks that findings name, in any job."""

import numpy as np
import pytest
from benchmarks.faults.build import batch, draw_shape, training
from benchmarks.faults.generated import FAULTS
from hypothesis import given, settings
from hypothesis import strategies as st

from jobmeter.cli.screens.draw import FAR_STYLE
from jobmeter.cli.screens.members import rank_rows
from jobmeter.cli.screens.watch import Curves, WatchParts
from jobmeter.diagnose.examine import examine
from jobmeter.diagnose.rank_findings import MOST
from jobmeter.diagnose.thresholds import load
from jobmeter.model.answers import LatestValue

THRESHOLDS = load()
SEEDS = st.integers(0, 2**32 - 1)
RULES = sorted(rule for rule, makes in FAULTS.items() if makes)


def marks(findings):
    """Return the ranks that the page and the terminal mark."""
    return {name for one in findings for name in one.replicas}


def named(case, findings):
    """Return the subjects of findings as ranks, by an independent way through the allocations."""
    owners = {(one.node, one.device): one.replica for one in case.view.allocations}
    found = set()
    for one in findings:
        node, _, device = one.subject.name.partition("/")
        if one.subject.kind == "replica":
            found.add(one.subject.name)
        elif one.subject.kind == "device" and (node, device) in owners:
            found.add(owners[node, device])
    return found


def marked_in_terminal(case, findings):
    """Return the ranks whose names are highlighted on the screen of a job."""
    values = [LatestValue(metric="cpu.usage", unit="{core}", replica=one.name, value=1.0) for one in case.view.replicas]
    rows = rank_rows(WatchParts(0, case.job, {}, values), Curves(), findings)
    return {row.key for row in rows if any(span.style == FAR_STYLE for span in row.cells[0].text.spans)}


@given(SEEDS, st.sampled_from(RULES))
@settings(max_examples=20)
def test_marks_are_the_ranks_that_findings_name(seed, rule):
    random = np.random.default_rng(seed)
    case = FAULTS[rule][int(random.integers(len(FAULTS[rule])))](random).case()
    findings = examine(case, THRESHOLDS)
    whole = [one for one in findings if one.subject.kind == "job"]
    of_members = [one for one in findings if one.subject.kind in {"replica", "device"}]
    assert named(case, findings) <= marks(findings) <= {one.name for one in case.view.replicas}
    assert marks(of_members) >= named(case, of_members)
    # The sentence of a finding about the whole job names the marked ranks, unless it summarizes several.
    for one in whole:
        assert all(name in one.sentence for name in one.replicas) or len(one.replicas) > 1
    assert all(one.replicas for one in of_members)
    assert marked_in_terminal(case, findings) == marks(findings)


@given(SEEDS)
@settings(max_examples=12)
def test_a_rank_that_stands_out_is_marked_and_no_other(seed):
    """A device is far below the others, in jobs of any size, sampling and level: visible to anybody on the map."""
    random = np.random.default_rng(seed)
    made = training(random, draw_shape(random))
    replica, device = made.gpus[int(random.integers(len(made.gpus)))]
    first = made.at(float(random.uniform(0.0, 0.4)))
    level = float(random.uniform(0.3, 0.6))
    for metric in ("gpu.utilization", "gpu.sm.active", "gpu.tensor.active", "gpu.power"):
        if (metric, replica, device) in made.series:
            made.series[metric, replica, device][first:] *= level
    case = made.case()
    findings = examine(case, THRESHOLDS)
    assert marks(findings) == {replica}, [one.sentence for one in findings]
    place = f"{replica} (node-{replica}, {device})"
    assert all(one.sentence.startswith(place) for one in findings)


@given(SEEDS, st.sampled_from([training, batch]))
@settings(max_examples=8)
def test_a_healthy_job_has_no_mark(seed, make):
    random = np.random.default_rng(seed)
    assert marks(examine(make(random, draw_shape(random)).case(), THRESHOLDS)) == set()


@pytest.mark.parametrize("idle", [MOST, MOST + 1, 40])
def test_one_finding_that_stands_for_many_marks_all_of_them(idle):
    random = np.random.default_rng(idle)
    made = training(random, draw_shape(random))
    while made.replicas * made.devices <= idle or made.devices != 1:
        made = training(random, draw_shape(random))
    chosen = made.gpus[:idle]
    for replica, device in chosen:
        for metric in ("gpu.utilization", "gpu.sm.active", "gpu.tensor.active"):
            if (metric, replica, device) in made.series:
                made.series[metric, replica, device][:] = 0.0
    findings = [one for one in examine(made.case(), THRESHOLDS) if one.rule == "gpu_idle_allocated"]
    assert marks(findings) == {replica for replica, _ in chosen}
    assert len(findings) == (idle if idle <= MOST else 1)
