"""Tests of heterogeneous Slurm jobs: tasks are matched to components by the ranks that the tasks have."""

from dataclasses import replace
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobmeter.collect.scheduler.slurm.accounting import COLUMNS, DELIMITER, parse_accounting
from jobmeter.collect.scheduler.slurm.slurm_job import Attempt, SlurmJob, SlurmStep
from jobmeter.collect.scheduler.slurm.source import AccountingDatabase, SlurmScheduler
from jobmeter.model.record import JobRecord, ReplicaRecord

NOW = 1_795_375_300_000
LEADER = 100


def row(number: int, label: str, step: str = "", **fields: Any) -> str:
    """Return a line of ``sacct``: an allocation, or a step of it."""
    ending = f".{step}" if step else ""
    times = {"submit": "1795375000", "start": "1795375100", "end": "Unknown"}
    values = {"jobidraw": f"{number}{ending}", "jobid": f"{label}{ending}", "jobname": "het", "user": "u", **times}
    values |= {"state": "RUNNING", "exitcode": "0:0", **fields}
    return DELIMITER.join(values.get(name, "") for name in COLUMNS)


def table(steps: dict[str, list[int]], components: int) -> str:
    """Return the ``sacct`` output of a heterogeneous job: ``steps`` gives the tasks of each step in each component."""
    lines = []
    for place in range(components):
        number, label, node = LEADER + place, f"{LEADER}+{place}", f"n{place}"
        lines.append(row(number, label, nodelist=node))
        lines += [row(number, label, "batch", ntasks="1", nodelist=node)] if place == 0 else []
        lines.append(row(number, label, "extern", ntasks="1", nodelist=node))
        lines += [
            row(number, label, step, ntasks=str(tasks[place]), nodelist=node)
            for step, tasks in steps.items()
            if tasks[place]
        ]
    return "\n".join(lines)


def queue(components: int, **fields: Any) -> list[SlurmJob]:
    """Return the jobs of ``table`` as the controller lists them, without steps."""
    return [
        SlurmJob(
            number=LEADER + place,
            label=f"{LEADER}+{place}",
            name="het",
            user="u",
            restarts=0,
            attempts=(Attempt(state="RUNNING", submit=1795375000, start=1795375100, nodes=(f"n{place}",), **fields),),
        )
        for place in range(components)
    ]


def replicas(jobs: list[JobRecord]) -> dict[int, dict[str, tuple[int | None, str]]]:
    """Return the rank and node of each replica, by job."""
    found: dict[int, dict[str, tuple[int | None, str]]] = {}
    for job in jobs:
        mine = found.setdefault(int(job.job_id), {})
        mine |= {one.name: (one.rank, one.node) for one in job.replicas if isinstance(one, ReplicaRecord)}
    return found


STEPS = st.dictionaries(
    st.sampled_from([str(number) for number in range(6)]),
    st.lists(st.integers(0, 3), min_size=4, max_size=4),
    max_size=5,
)


@given(STEPS, st.integers(1, 4))
def test_a_component_has_the_tasks_that_its_steps_have(steps: dict[str, list[int]], components: int) -> None:
    text = table(steps, components)
    database = AccountingDatabase(lambda numbers: parse_accounting(text), lambda seconds: parse_accounting(text))
    scheduler = SlurmScheduler("c", lambda: queue(components), database)
    found = replicas(scheduler.poll(NOW).jobs)
    for place in range(components):
        # SLURM_PROCID counts on from one component to the next, and from 0 in each step.
        ranks = {0} if place == 0 else set()
        for tasks in steps.values():
            first = [0, *accumulate(tasks)][place]
            ranks |= set(range(first, first + tasks[place]))
        assert found[LEADER + place] == {f"worker-{rank}": (rank, f"n{place}") for rank in ranks}


@pytest.mark.parametrize("accounting", [False, True])
def test_a_component_without_steps_has_no_task(accounting: bool) -> None:
    text = table({}, 2)
    database = AccountingDatabase(lambda numbers: parse_accounting(text), lambda seconds: parse_accounting(text))
    scheduler = SlurmScheduler("c", lambda: queue(2), database if accounting else None)
    found = replicas(scheduler.poll(NOW).jobs)
    assert {job: list(names) for job, names in found.items()} == {LEADER: ["worker-0"], LEADER + 1: []}


def test_the_ranks_are_those_of_the_steps_of_one_time() -> None:
    """Accounting has only the script of the first component before a step starts that spans both."""
    texts = [table({}, 2), table({"0": [2, 3]}, 2)]
    asked: list[list[int]] = []

    def of_jobs(numbers: list[int]) -> dict[int, SlurmJob]:
        asked.append(numbers)
        return {number: facts for number, facts in parse_accounting(texts[-1]).items() if number in numbers}

    scheduler = SlurmScheduler(
        "c", lambda: queue(2), AccountingDatabase(of_jobs, lambda seconds: parse_accounting(texts[0]))
    )
    found = replicas(scheduler.poll(NOW).jobs)
    assert found[LEADER + 1] == {}
    found = replicas(scheduler.poll(NOW).jobs)
    assert asked == [[LEADER, LEADER + 1]]
    assert sorted(found[LEADER + 1]) == ["worker-2", "worker-3", "worker-4"]


def test_nothing_is_said_of_a_component_while_an_earlier_one_is_unknown() -> None:
    text = table({"0": [2, 3]}, 2)
    database = AccountingDatabase(lambda numbers: parse_accounting(text), lambda seconds: {})
    scheduler = SlurmScheduler("c", lambda: queue(2)[1:], database)
    assert replicas(scheduler.poll(NOW).jobs) == {LEADER + 1: {}}


def test_restarted_components_go_by_their_own_attempt() -> None:
    first = Attempt(state="REQUEUED", submit=1, start=10, end=20, nodes=("n0",), steps=(SlurmStep("0", 3, ("n0",)),))
    then = Attempt(state="RUNNING", submit=1, start=30, nodes=("n0",), steps=(SlurmStep("0", 1, ("n0",)),))
    jobs = [replace(one, restarts=1, attempts=(first, then)) for one in queue(2)]
    database = AccountingDatabase(lambda numbers: {}, lambda seconds: {one.number: one for one in jobs})
    scheduler = SlurmScheduler(
        "c", lambda: [replace(one, attempts=(replace(then, steps=()),)) for one in jobs], database
    )
    (record,) = [job for job in scheduler.poll(NOW).jobs if job.job_id == str(LEADER + 1) and job.replicas]
    names = {(one.name, one.attempt) for one in record.replicas if isinstance(one, ReplicaRecord)}
    assert names == {("worker-3", 0), ("worker-4", 0), ("worker-5", 0), ("worker-1", 1)}
