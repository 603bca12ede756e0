"""Tests of a short storm of each topology: every acknowledged sample exists once, and all answers are correct."""

import pytest

from tests.storm.storm import BAD, Load, Plan, run_storm

SCRIPTS = {
    "leader": ("leader killed", "follower killed", "leader frozen", "follower frozen", "ClickHouse killed"),
    "replicas": (
        "ClickHouse killed",
        "leader killed",
        "ClickHouse frozen",
        "leader frozen",
        "PostgreSQL killed",
        "worker killed",
    ),
    "cluster": ("ClickHouse killed", "leader killed"),
}


@pytest.mark.slow
@pytest.mark.parametrize("topology", sorted(SCRIPTS))
def test_a_storm_neither_loses_nor_doubles_nor_hides_samples(topology, tmp_path):
    script, load = SCRIPTS[topology], Load(samples=1_000, questions=10, bulk=1, live=1, readers=1)
    processes = 1 if topology == "cluster" else 2
    storm = run_storm(Plan(topology, seed=1, script=script, load=load, processes=processes), tmp_path)
    table = storm.describe()
    assert not any(storm.report.counts[kind] for kind in BAD), table
    assert storm.report.counts["questions compared exactly"], table
    assert storm.report.counts["names compared"], table
