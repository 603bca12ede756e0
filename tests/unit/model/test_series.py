"""Tests of names and keys of series: every part counts, and no two series share a key."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobmeter.errors import InvalidRequestError
from jobmeter.model.series import (
    NO_JOB,
    Series,
    check_job_id,
    check_name,
    check_project,
    check_series,
    compute_job_key,
)

names = st.just("") | st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._:@+*=~-]{0,12}", fullmatch=True)
labels = st.dictionaries(st.sampled_from(["a", "b", "c_d"]), st.text("xyz /", max_size=4), max_size=3).map(
    lambda found: tuple(sorted(found.items()))
)
series = st.builds(
    Series,
    metric=st.sampled_from(["cpu.usage", "cpu.limit"]),
    project=st.sampled_from(["default", "p"]),
    cluster=names,
    node=names,
    device=names,
    job=names,
    replica=names,
    attempt=st.integers(0, 3),
    labels=labels,
)


@given(series, series)
def test_ids_are_equal_exactly_when_series_are(one, other):
    assert (one.id == other.id) == (one == other)


@given(series)
def test_ids_fit_64_bits_and_legal_series_pass(one):
    assert 0 <= one.id < 2**64
    assert check_series(one) is one
    assert (one.job_key == NO_JOB) == (one.job == "")


def test_ids_are_the_same_on_every_machine_for_ever():
    one = Series(
        "gpu.power", cluster="c", node="n", device="gpu0", job="j", replica="w", attempt=1, labels=(("a", "b"),)
    )
    assert (one.id, one.job_key) == (16326956189187413237, 12838226884842274467)


def test_a_name_moved_from_one_part_to_the_next_is_another_series():
    base = Series("m", node="x")
    assert len({base.id, replace(base, node="", device="x").id, replace(base, node="", cluster="x").id}) == 3
    assert compute_job_key("a", "b") != compute_job_key("b", "a")


@pytest.mark.parametrize("name", ["", "-a", "a b", "a/b", "a" * 129, "..", "a\n", "\x1b[0m", "ü", "a'b"])
def test_names_that_are_none(name):
    with pytest.raises(InvalidRequestError) as caught:
        check_name(name, "node")
    assert caught.value.field == "node"


@pytest.mark.parametrize(
    "job", ["", " a", "a ", "a/b", "a\\b", "a'b", 'a"b', "a`b", "<b>", "a\x00", ".", "..", "a" * 129]
)
def test_job_ids_that_are_none(job):
    with pytest.raises(InvalidRequestError):
        check_job_id(job)


@pytest.mark.parametrize("job", ["dlc1234", "a b", "Ärger", "a" * 128, "[0-9]_1", "12345.batch"])
def test_job_ids(job):
    assert check_job_id(job) == job


@pytest.mark.parametrize("project", ["", "a_b", "a" * 65, "a.b", "ä"])
def test_projects_that_are_none(project):
    with pytest.raises(InvalidRequestError):
        check_project(project)
