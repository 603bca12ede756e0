"""Tests of the order of groups in a list, the limit of a sort by size, and a group deleted during a listing."""

import pytest

from jobmeter.access.call import Call
from jobmeter.dialects.alibaba.common.groups import MOST_SIZED, read_group_page
from jobmeter.dialects.alibaba.common.listing import sort_records
from jobmeter.dialects.alibaba.common.operation import AlibabaRequest
from jobmeter.dialects.base import Context, drive
from jobmeter.errors import LimitExceededError, NotFoundError
from jobmeter.query.group import Amounts, CapacityQuestion, ResourceGroup

REQUEST = AlibabaRequest(call=Call("GET", "/", "", ()), context=Context(10**12, "id"))


def listed(groups, answer, **options):
    steps = read_group_page(REQUEST, groups, (0, 10), **{"descending": True, **options})
    return drive(steps, answer)


def test_unknown_values_come_last_in_both_directions_and_equal_ones_stay_in_order():
    records = [("a", 1), ("b", None), ("c", 2), ("d", 1), ("e", None)]
    assert "".join(name for name, _ in sort_records(records, lambda one: one[1], descending=False)) == "adcbe"
    assert "".join(name for name, _ in sort_records(records, lambda one: one[1], descending=True)) == "cadbe"


def test_a_sort_by_size_has_a_bound_and_another_sort_has_none():
    groups = [ResourceGroup(name=f"g{at}", nodes=1, created=at) for at in range(MOST_SIZED + 1)]
    with pytest.raises(LimitExceededError) as refused:
        listed(groups, lambda _: Amounts(), by_size=lambda one: one.capacity.cpu)
    assert refused.value.field == "sort"
    asked = []

    def answer(question):
        asked.append(question)
        return Amounts()

    found = listed(groups, answer, sort=lambda group: group.created)
    assert [one.group.name for one in found][:2] == [f"g{MOST_SIZED}", f"g{MOST_SIZED - 1}"]
    assert len(asked) == 2 * 10, "the sizes of one page alone"


def test_a_group_that_goes_while_it_is_listed_has_nothing():
    def answer(question):
        if question.group.id == "gone":
            raise NotFoundError("there is no resource group 'gone'", "resource_group", "gone")
        return Amounts(cpu=4.0) if isinstance(question, CapacityQuestion) else Amounts()

    groups = [ResourceGroup(name="gone"), ResourceGroup(name="there", nodes=2)]
    found = listed(groups, answer, by_size=lambda one: one.capacity.cpu)
    assert [(one.group.name, one.nodes, one.capacity.cpu) for one in found] == [("there", 2, 4.0), ("gone", 0, 0.0)]
