"""Tests of job statuses: a filter by the status that a job shows finds the job, in the words of every product."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobmeter.dialects.alibaba.common.statuses import Statuses, list_states
from jobmeter.dialects.alibaba.eas.names import STATUS as EAS
from jobmeter.dialects.alibaba.pai_dlc.states import STATUS as DLC
from jobmeter.dialects.alibaba.pai_studio.operations.job_list import STATUS as STUDIO
from jobmeter.model.job import Job, JobState, Operator


def fits(product: Statuses, job: Job, status: str) -> bool:
    """Return True if a listing with that filter contains the job, by evaluating the conditions here."""
    states, conditions = product.find_matching(status)
    own = job.extra.get(product.dialect, {}).get("Status")
    return job.state in states and all((own in one.values) is (one.operator is Operator.IN) for one in conditions)


@given(
    product=st.sampled_from([DLC, STUDIO, EAS]),
    state=st.sampled_from(JobState),
    finer=st.none() | st.sampled_from(sorted({*DLC.meanings, *STUDIO.meanings, *EAS.meanings, "Sleeping"})),
)
def test_a_job_is_found_under_the_status_that_it_shows_and_no_other(product, state, finer):
    job = Job(id="j", state=state, extra={product.dialect: {"Status": finer}} if finer else {})
    shown = product.find_status(job)
    assert product.words[product.meanings[shown]] == product.words[state]
    assert [status for status in product.meanings if fits(product, job, status)] == [shown]
    if finer in product.meanings and product.meanings[finer] is state:
        assert shown == finer


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, []),
        ({"created": 1}, [(1, JobState.QUEUED)]),
        ({"created": 1, "start": 2}, [(1, JobState.QUEUED), (2, JobState.RUNNING)]),
        ({"start": 2, "end": 3, "state": JobState.FAILED}, [(2, JobState.RUNNING), (3, JobState.FAILED)]),
        ({"start": 2, "end": 3}, [(2, JobState.RUNNING)]),
    ],
)
def test_the_states_that_a_job_went_through(fields, expected):
    assert list_states(Job(id="j", **fields)) == expected
