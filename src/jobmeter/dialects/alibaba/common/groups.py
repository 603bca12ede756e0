"""Lists of resource groups: filters, order, and sizes."""

from collections.abc import Callable, Collection, Sequence
from typing import Any

import msgspec

from jobmeter.dialects.alibaba.common.listing import sort_records
from jobmeter.dialects.alibaba.common.operation import AlibabaRequest, Lookup
from jobmeter.dialects.base import ask
from jobmeter.errors import LimitExceededError, NotFoundError
from jobmeter.model.job import JobState
from jobmeter.model.time import MINUTE, TimeRange
from jobmeter.query.group import (
    Amounts,
    CapacityQuestion,
    GroupNodesQuestion,
    RequestsQuestion,
    ResourceGroup,
    ResourceGroupsQuestion,
)
from jobmeter.query.request import GroupRef

NOW_MS = 5 * MINUTE
"""Length, in ms, of the range that stands for the current state."""
MOST_SIZED = 1_000
"""Most groups that are sorted by their sizes: each size must be computed."""


class SizedGroup(msgspec.Struct, frozen=True, kw_only=True):
    """A resource group with its number of nodes, their capacity, and the limits of its jobs' running replicas."""

    group: ResourceGroup
    nodes: int
    capacity: Amounts
    running: Amounts


GroupSort = Callable[[ResourceGroup], Any]
SizeSort = Callable[[SizedGroup], Any]


def find_groups(*filters: Collection[str]) -> Lookup[Sequence[ResourceGroup]]:
    """Return the groups whose names are in every non-empty filter, by name; all groups without a filter."""
    given = [frozenset(names) for names in filters if names]
    names = frozenset.intersection(*given) if given else frozenset()
    return [] if given and not names else (yield from ask(ResourceGroupsQuestion(names=names)))


def find_group(name: str) -> Lookup[ResourceGroup]:
    """Return the group of that name. Raises NotFoundError if no record names it."""
    found = yield from find_groups((name,))
    if not found:
        raise NotFoundError(f"there is no resource group {name!r}", "resource_group", name)
    return found[0]


def count_nodes(group: ResourceGroup, span: TimeRange) -> Lookup[int]:
    """Return the number of a group's nodes: those that name the group, else those on which its jobs ran lately."""
    if group.nodes:
        return group.nodes
    try:
        return len((yield from ask(GroupNodesQuestion(group=GroupRef(group.name), range=span))))
    except NotFoundError:  # its last job was deleted since the list was made
        return 0


def read_group_page(
    request: AlibabaRequest,
    groups: Sequence[ResourceGroup],
    page: tuple[int, int],
    sort: GroupSort | None = None,
    by_size: SizeSort | None = None,
    *,
    descending: bool,
) -> Lookup[list[SizedGroup]]:
    """Return a page (offset, size) of groups with their sizes, sorted by a field or by their sizes.

    Raises LimitExceededError if more than ``MOST_SIZED`` groups would be sorted by their sizes.
    """
    offset, size = page
    if by_size is None:
        ordered = groups if sort is None else sort_records(groups, sort, descending=descending)
        return (yield from _measure_groups(request, ordered[offset : offset + size]))
    if len(groups) > MOST_SIZED:
        raise LimitExceededError(
            f"up to {MOST_SIZED} resource groups are sorted by their sizes, these are {len(groups)}: name some", "sort"
        )
    found = yield from _measure_groups(request, groups)
    return sort_records(found, by_size, descending=descending)[offset : offset + size]


def _measure_groups(request: AlibabaRequest, groups: Sequence[ResourceGroup]) -> Lookup[list[SizedGroup]]:
    found = []
    for group in groups:
        sized = yield from _size(group, request.make_recent_range(NOW_MS))
        found.append(sized)
    return found


def _size(group: ResourceGroup, span: TimeRange) -> Lookup[SizedGroup]:
    nodes = yield from count_nodes(group, span)
    capacity = yield from _amounts(CapacityQuestion(group=GroupRef(group.name), range=span))
    running = yield from sum_requests(group, span, JobState.RUNNING)
    return SizedGroup(group=group, nodes=nodes, capacity=capacity, running=running)


def sum_requests(group: ResourceGroup, span: TimeRange, *states: JobState) -> Lookup[Amounts]:
    """Return the summed limits of the replicas of a group's jobs in any of these states."""
    return (yield from _amounts(RequestsQuestion(group=GroupRef(group.name), range=span, states=frozenset(states))))


def _amounts(question: CapacityQuestion | RequestsQuestion) -> Lookup[Amounts]:
    try:
        return (yield from ask(question))
    except NotFoundError:  # its last job was deleted since the list was made
        return Amounts()
