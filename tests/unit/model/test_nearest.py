from hypothesis import given
from hypothesis import strategies as st

from jobmeter.model.catalog import CATALOG
from jobmeter.model.nearest import MOST, did_you_mean, nearest


def test_names_that_contain_the_text_come_before_similar_ones():
    assert nearest("GPU.util", ["gpu.utilization", "cpu.utilization", "memory"])[0] == "gpu.utilization"
    assert nearest("wrker-0", ["worker-0", "driver"]) == ["worker-0"]


def test_without_a_near_name_there_is_no_suggestion():
    assert did_you_mean("zzzz", CATALOG) == ""
    assert did_you_mean("gpu.utilisation", CATALOG).startswith("; did you mean gpu.utilization")


@given(st.text(), st.lists(st.text()))
def test_only_names_that_there_are_each_once(text, names):
    found = nearest(text, names)
    assert set(found) <= set(names)
    assert len(found) == len(set(found)) <= MOST
