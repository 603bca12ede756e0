"""Tests of the states, roles, pods and identifiers of PAI-DLC."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobmeter.access.call import Call
from jobmeter.dialects.alibaba.pai_dlc.operations.job_list import ListJobs
from jobmeter.dialects.alibaba.pai_dlc.operations.registration import make_job_id
from jobmeter.dialects.alibaba.pai_dlc.pods import find, list_pods, name_pod_type
from jobmeter.dialects.alibaba.pai_dlc.specs import JobSpec, ResourceConfig, parse_quantity, read_specs, sum_specs
from jobmeter.dialects.alibaba.pai_dlc.states import STATUS, STATUSES, find_pod_status
from jobmeter.dialects.base import Context
from jobmeter.errors import InvalidRequestError, NotFoundError
from jobmeter.model.job import Job, JobFilter, JobState, JobView, Operator, Replica


def fits(job, status):
    """Return True if a listing with that filter contains the job, by evaluating the conditions here."""
    states, conditions = STATUS.find_matching(status)
    own = job.extra.get("pai-dlc", {}).get("Status")
    return job.state in states and all((own in one.values) is (one.operator is Operator.IN) for one in conditions)


@given(state=st.sampled_from(list(JobState)), finer=st.none() | st.sampled_from(list(STATUSES)) | st.just("Sleeping"))
def test_a_job_is_found_under_the_status_that_it_shows_and_no_other(state, finer):
    job = Job(id="j", state=state, extra={"pai-dlc": {"Status": finer}} if finer else {})
    # The vendor has no status for an unknown end, which must never appear as a success.
    assert STATUSES[STATUS.find_status(job)] is (JobState.STOPPED if state is JobState.UNKNOWN else state)
    assert [status for status in STATUSES if fits(job, status)] == [STATUS.find_status(job)]


@pytest.mark.parametrize(
    ("text", "value"),
    [("4", 4), ("500m", 0.5), ("64Gi", 64 * 2**30), ("64GB", 64e9), ("1.5 Mi", 1.5 * 2**20), (8, 8), ("2k", 2000)],
)
def test_quantities(text, value):
    assert parse_quantity(text, "CPU") == pytest.approx(value)


@pytest.mark.parametrize("text", ["much", "-1", "4 4", "1e3", "Gi", "1ii", "nan", "4u"])
def test_no_quantities(text):
    with pytest.raises(InvalidRequestError) as refused:
        parse_quantity(text, "CPU")
    assert refused.value.field == "CPU"


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(0, 64), st.integers(0, 8)), max_size=4))
def test_totals_are_sums_over_pods(roles):
    specs = [
        JobSpec(type=f"r{n}", pod_count=count, resource_config=ResourceConfig(cpu=str(cpu), gpu=gpu))
        for n, (count, cpu, gpu) in enumerate(roles)
    ]
    found = sum_specs(specs)
    assert (found.cpu or 0) == sum(count * cpu for count, cpu, _ in roles)
    assert (found.gpu or 0) == sum(count * gpu for count, _, gpu in roles)
    assert found.pods == sum(count for count, _, _ in roles)


@pytest.mark.parametrize("given_", [None, "", 7, {"Type": "x"}, [1], [{"PodCount": "many"}]])
def test_a_record_may_hold_anything(given_):
    assert read_specs(given_) == []


@pytest.mark.parametrize(
    ("name", "role"), [("worker-0", "Worker"), ("ps-12", "PS"), ("worker-a-3", "Worker-a"), ("head", "Head")]
)
def test_roles_of_pods(name, role):
    assert name_pod_type(name) == role


def test_a_pod_that_says_nothing_follows_its_job():
    def status(replica, **job):
        return find_pod_status(replica, Job(id="j", **job))

    started = Replica(name="worker-0", start=1)
    assert status(started, state=JobState.RUNNING) == "Running"
    assert status(Replica(name="worker-0"), state=JobState.RUNNING) == "Pending"
    assert status(Replica(name="worker-0", start=1, end=2), state=JobState.RUNNING) == "Unknown"
    assert status(started, state=JobState.QUEUED) == "Pending"
    assert status(started, state=JobState.SUCCEEDED) == "Succeeded"
    running = Replica(name="worker-0", state=JobState.RUNNING)
    assert status(running, state=JobState.STOPPED) == "Failed"


def test_a_pod_that_runs_has_no_finish():
    """A pod known only from samples ends at its last sample."""
    replica = Replica(name="worker-0", start=1_000, end=2_000, state=JobState.RUNNING)
    (pod,) = list_pods(JobView(job=Job(id="j", state=JobState.RUNNING), replicas=[replica], allocations=[]), 5_000)
    assert (pod["Status"], pod["Duration"]) == ("Running", 4.0)
    assert "GmtFinishTime" not in pod


def test_only_jobs_that_ended_are_found_by_their_finish():
    call = Call("GET", "/api/v1/jobs", "TimeRangeField=GmtFinishTime", ())
    context = Context(0, "id")
    question = next(ListJobs.operations[0].answer(call, context))
    assert isinstance(question, JobFilter)
    assert question.states == {state for state in JobState if state.finished}


def test_every_attempt_has_its_own_uid():
    replicas = [Replica(name="worker-0", attempt=attempt) for attempt in (1, 2, 0)]
    view = JobView(job=Job(id="j"), replicas=replicas, allocations=[])
    (pod,) = list_pods(view, 0)
    uids = [pod["PodUid"], *(old["PodUid"] for old in pod["HistoryPods"])]
    assert len(set(uids)) == 3
    assert [find(view, "j-worker-0", uid)[0].attempt for uid in uids] == [2, 1, 0]
    assert find(view, "j-worker-0")[0].attempt == 2
    with pytest.raises(NotFoundError):
        find(view, "j-worker-1")


@given(st.uuids(), st.uuids())
def test_ids_are_the_vendors_and_as_unique_as_the_request(one, other):
    ids = {make_job_id(Context(0, str(uuid))) for uuid in (one, other)}
    assert all(re.fullmatch(r"dlc[0-9a-z]{13}", text) for text in ids)
    assert len(ids) == len({one, other})
