from hypothesis import given
from hypothesis import strategies as st

from jobmeter.model.catalog import CATALOG
from jobmeter.model.nearest import MOST, did_you_mean, nearest


def test_what_holds_the_text_comes_before_what_looks_like_it():
    assert nearest("GPU.util", ["gpu.utilization", "cpu.utilization", "memory"])[0] == "gpu.utilization"
    assert nearest("wrker-0", ["worker-0", "driver"]) == ["worker-0"]


def test_nothing_near_is_nothing_said():
    assert did_you_mean("zzzz", CATALOG) == ""
    assert did_you_mean("gpu.utilisation", CATALOG).startswith("; did you mean gpu.utilization")


@given(st.text(), st.lists(st.text()))
def test_only_names_that_there_are_each_once(text, names):
    found = nearest(text, names)
    assert set(found) <= set(names)
    assert len(found) == len(set(found)) <= MOST
