from hypothesis import given
from hypothesis import strategies as st

from jobmeter.model.catalog import CATALOG
from jobmeter.model.nearest import MOST, did_you_mean, find_nearest, format_choices


def test_names_that_contain_the_text_come_before_similar_ones():
    assert find_nearest("GPU.util", ["gpu.utilization", "cpu.utilization", "memory"])[0] == "gpu.utilization"
    assert find_nearest("wrker-0", ["worker-0", "driver"]) == ["worker-0"]


def test_without_a_near_name_there_is_no_suggestion():
    assert did_you_mean("zzzz", CATALOG) == ""
    assert did_you_mean("gpu.utilisation", CATALOG).startswith("; did you mean gpu.utilization")


@given(st.text(), st.lists(st.text()))
def test_only_names_that_there_are_each_once(text, names):
    found = find_nearest(text, names)
    assert set(found) <= set(names)
    assert len(found) == len(set(found)) <= MOST


def test_without_a_near_name_the_choices_are_listed_up_to_a_limit():
    assert format_choices("wrker", ["driver", "worker"]) == "; did you mean worker?"
    assert format_choices("x", ["b", "a"]) == "; choose from a, b"
    assert format_choices("x", ["a"], "it has") == "; it has a"
    many = [f"n{number:02}" for number in range(15)]
    assert format_choices("x", many) == f"; choose from {', '.join(many[:12])} and 3 more"
