"""Tests of steps that ran out of memory, for any end of their job."""

from jobmeter.collect.scheduler.slurm.accounting import COLUMNS, DELIMITER, parse_accounting
from jobmeter.collect.scheduler.slurm.records import (
    build_records,
    iterate_allocation_events,
    iterate_job_events,
    list_oom_steps,
)
from jobmeter.collect.scheduler.slurm.source import AccountingDatabase, SlurmScheduler
from jobmeter.model.job import JobState

TEXT = {"jobname": "train", "user": "ada", "account": "a", "partition": "p", "submit": "100", "start": "110"}


def row(number, **fields):
    values = {**TEXT, "jobidraw": number, "jobid": number, "nodelist": "n1", "ntasks": "1", "end": "120", **fields}
    return DELIMITER.join(str(values.get(name, "")) for name in COLUMNS)


def accounted(state, code):
    lines = [
        row("6", state=state, exitcode=code),
        row("6.batch", state=state, exitcode=code),
        row("6.0", state="OUT_OF_MEMORY", exitcode="0:125", end="115"),
    ]
    return parse_accounting("\n".join(lines))


def test_a_script_that_went_on_succeeded_and_its_step_is_an_event():
    (facts,) = accounted("COMPLETED", "0:0").values()
    assert list_oom_steps(facts.now) == ["0"]
    (job,) = build_records(facts, "c")
    assert (job.state, job.error, job.exit_code) == (JobState.SUCCEEDED, "", 0)
    (event,) = iterate_job_events(facts, "c")
    assert (event.job, event.time, event.node, event.reason) == ("6", 115_000, "n1", "OOMKilled")


def test_a_script_that_failed_for_it_says_so():
    (facts,) = accounted("FAILED", "9:0").values()
    assert build_records(facts, "c")[0].error == "FAILED: exit status 9; step 0 ran out of memory"


def test_an_attempt_begins_with_the_event_that_it_got_its_nodes():
    (facts,) = accounted("COMPLETED", "0:0").values()
    (event,) = iterate_allocation_events(facts, "c")
    assert (event.job, event.attempt, event.time, event.reason) == ("6", 0, 110_000, "Allocated")


def test_an_event_is_sent_once():
    found = accounted("FAILED", "9:0")
    scheduler = SlurmScheduler(
        "c", lambda: list(found.values()), AccountingDatabase(lambda _numbers: found, lambda _back: found)
    )
    reasons = [[event.reason for event in scheduler.poll(time).events] for time in (1_000, 2_000, 3_000)]
    assert reasons == [["Allocated", "OOMKilled"], [], []]
