"""Tests of sums over processes that come and go, against a simulation that knows the correct sums."""

from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from jobmeter.collect.base import Owner
from jobmeter.collect.cgroup.count import GroupCounters
from jobmeter.collect.cgroup.usage import CgroupUsage
from jobmeter.collect.process.totals import ProcessReading, ProcessTotals


class Kernel:
    """Family of processes as the kernel keeps it: a counter holds the process and the children it waited for."""

    def __init__(self):
        self.parent: dict[int, int | None] = {0: None}
        self.counted = {0: 0.0}
        self.used = 0.0
        self.next = 1

    def spawn(self, parent):
        self.parent[self.next] = parent
        self.counted[self.next] = 0.0
        self.next += 1

    def burn(self, process, amount):
        self.counted[process] += amount
        self.used += amount

    def end(self, process, *, waited_for):
        parent = self.parent.pop(process)
        counted = self.counted.pop(process)
        if waited_for and parent in self.counted:
            self.counted[parent] += counted
        for child, its in self.parent.items():
            if its == process:
                self.parent[child] = None

    def readings(self, owner="a"):
        return {p: ProcessReading(owner, (self.counted[p],), self.parent[p]) for p in self.counted}


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["spawn", "burn", "end", "look"]),
        st.integers(0, 10**6),
        st.integers(1, 50),
    ),
    max_size=60,
)


def play(steps, *, waited_for, leaves_only=False):
    kernel, recorded_sums = Kernel(), []
    totals: ProcessTotals[int, str] = ProcessTotals(1)
    for action, number, amount in steps:
        alive = sorted(kernel.counted)
        process = alive[number % len(alive)]
        if action == "spawn":
            kernel.spawn(process)
        elif action == "burn":
            kernel.burn(process, float(amount))
        elif action == "end" and process != 0 and not (leaves_only and process in kernel.parent.values()):
            kernel.end(process, waited_for=waited_for and kernel.parent[process] is not None)
        elif action == "look":
            totals.update(kernel.readings())
            recorded_sums.append((totals.get_totals()["a"][0], kernel.used))
    totals.update(kernel.readings())
    recorded_sums.append((totals.get_totals()["a"][0], kernel.used))
    return recorded_sums


@given(STEPS)
def test_the_sum_never_falls_and_is_never_more_than_was_used(steps):
    for waited_for in (True, False):
        sums = [total for total, _ in play(steps, waited_for=waited_for)]
        assert sums == sorted(sums)
        for total, used in play(steps, waited_for=waited_for):
            assert total <= used + 1e-9


@given(STEPS)
def test_when_every_child_is_waited_for_nothing_is_lost_at_all(steps):
    for total, used in play(steps, waited_for=True, leaves_only=True):
        assert total == used


@given(st.lists(st.integers(1, 9), min_size=1, max_size=8))
def test_children_that_lived_and_ended_between_two_looks_count_through_their_parent(amounts):
    kernel = Kernel()
    totals: ProcessTotals[int, str] = ProcessTotals(1)
    totals.update(kernel.readings())
    for amount in amounts:
        kernel.spawn(0)
        kernel.burn(kernel.next - 1, float(amount))
        kernel.end(kernel.next - 1, waited_for=True)
    totals.update(kernel.readings())
    assert totals.get_totals()["a"] == (float(sum(amounts)),)


def test_a_child_that_was_never_reaped_still_counts():
    totals: ProcessTotals[int, str] = ProcessTotals(1)
    totals.update({1: ProcessReading("a", (1.0,)), 2: ProcessReading("a", (5.0,), 1)})
    for _ in range(2):
        totals.update({1: ProcessReading("a", (1.0,))})
    assert totals.get_totals()["a"] == (6.0,)


def test_a_parent_of_another_owner_does_not_count_what_it_waited_for():
    totals: ProcessTotals[int, str] = ProcessTotals(1)
    totals.update({1: ProcessReading("a", (1.0,)), 2: ProcessReading("b", (5.0,), 1)})
    totals.update({1: ProcessReading("a", (6.5,))})
    assert totals.get_totals() == {"a": (1.5,), "b": (5.0,)}
    totals.update({1: ProcessReading("a", (7.0,))})
    assert totals.get_totals() == {"a": (2.0,), "b": (5.0,)}


def test_final_figures_replace_what_was_sampled():
    totals: ProcessTotals[int, str] = ProcessTotals(1)
    totals.update({1: ProcessReading("a", (1.0,)), 2: ProcessReading("a", (3.0,), 1)})
    totals.update({}, {1: ProcessReading("a", (4.5,))})
    assert totals.get_totals()["a"] == (4.5,)  # process 1 had waited for 2: 1 + 3, and a little more


def test_final_figures_of_what_was_never_sampled_count():
    totals: ProcessTotals[int, str] = ProcessTotals(2)
    totals.update({}, {1: ProcessReading("a", (0.2, 7.0))})
    assert totals.get_totals()["a"] == (0.2, 7.0)
    totals.update({})
    assert totals.get_totals()["a"] == (0.2, 7.0)


def test_forgotten_owners_have_no_totals():
    totals: ProcessTotals[int, str] = ProcessTotals(1)
    totals.update({1: ProcessReading("a", (1.0,))})
    totals.update({})
    totals.forget(["a"])
    assert totals.get_totals() == {}


class Step(NamedTuple):
    action: str
    number: int
    amount: int


class Adopting:
    """Kernel whose orphans move to this process, which waits for them and learns of it late.

    A reading covers one process at a time. A process may move to another owner.
    """

    def __init__(self):
        self.parent: dict[int, int | None] = {0: None}
        self.own = {0: 0.0}
        self.owner = {0: "a"}
        self.waited = {0: 0.0}
        self.used = 0.0
        self.next = 1
        self.late: list[tuple[int, int, float, float]] = []  # updates to wait, process, usage, waited part
        self.totals: ProcessTotals[int, str] = ProcessTotals(1)
        self.hidden: set[int] = set()
        self.was_hidden: set[int] = set()
        self.parents: set[int] = set()
        self.recorded_sums: list[tuple[float, float]] = []

    def spawn(self, parent):
        self.parents.add(parent)
        self.parent[self.next] = parent
        self.own[self.next] = self.waited[self.next] = 0.0
        self.owner[self.next] = self.owner[parent]
        self.next += 1

    def burn(self, process, amount):
        self.own[process] += amount
        self.used += amount

    def end(self, process, *, ignored, late):
        parent = self.parent.pop(process)
        own, waited = self.own.pop(process), self.waited.pop(process)
        if parent is None:
            self.late.append((late, process, own + waited, waited))
        elif not ignored:
            self.waited[parent] += own + waited
        for child, its in self.parent.items():
            if its == process:
                self.parent[child] = None

    def read(self, processes):
        return {
            one: ProcessReading(
                self.owner[one], (self.own[one] + self.waited[one],), self.parent[one], (self.waited[one],)
            )
            for one in processes
            if one in self.own and one not in self.hidden - self.parents
        }

    def look(self, first=()):
        live = {**dict(first), **self.read(sorted(set(self.own) - {one for one, _ in first}))}
        due: dict[int, ProcessReading[int, str]] = {
            one: ProcessReading(self.owner[one], (counted,), waited=(own,))
            for late, one, counted, own in self.late
            if late <= 0
        }
        self.late = [(late - 1, one, counted, own) for late, one, counted, own in self.late if late > 0]
        self.totals.update(live, due)
        self.was_hidden, self.hidden = self.hidden, set()
        self.recorded_sums.append((sum(values[0] for values in self.totals.get_totals().values()), self.used))

    def play(self, step):
        alive = sorted(self.own)
        process = alive[step.number % len(alive)]
        if step.action == "spawn":
            self.spawn(process)
        elif step.action == "burn":
            self.burn(process, float(step.amount))
        elif step.action in {"end", "ignored"} and process != 0:
            self.end(process, ignored=step.action == "ignored", late=step.amount % 4)
        elif step.action == "adopt" and process != 0:
            self.parent[process] = None
        elif step.action == "move" and process != 0:
            self.owner[process] = "b" if self.owner[process] == "a" else "a"
        elif step.action == "moved" and (ended := sorted({one for _, one, _, _ in self.late})):
            self.owner[ended[step.number % len(ended)]] = "b"  # known only after its end is reported
        elif step.action == "hide" and process not in self.was_hidden | self.parents:
            self.hidden.add(process)  # an unreadable parent looks the same as one that ended
        elif step.action == "look":
            self.look()
        elif step.action == "torn" and process != 0 and process not in self.was_hidden:
            # The older half is read before this process uses CPU time and ends, the rest afterwards.
            first = list(self.read(alive[: len(alive) // 2 + 1]).items())
            self.burn(process, 1.0)
            self.end(process, ignored=False, late=step.amount % 4)
            self.look([(one, reading) for one, reading in first if one != process])


BEGUN = [Step("spawn", 0, 1), Step("spawn", 1, 1), Step("burn", 2, 40), Step("adopt", 1, 1), Step("look", 0, 1)]
"""An orphan, process 1, whose child, process 2, has used 40."""
CONTAINER = [*BEGUN, Step("end", 2, 0), Step("end", 1, 1), Step("look", 0, 1), Step("moved", 0, 1)]
"""An update comes between the end of the orphan and its final figures, which name another owner."""
ORPHAN_BEFORE_ITS_END_IS_REPORTED = [*BEGUN, Step("torn", 2, 0), Step("end", 1, 2)]
"""The orphan is read before it waits for its child; the next update comes before its final figures."""
PASSED_ON = [*BEGUN, Step("move", 2, 1), Step("look", 0, 1), Step("end", 2, 0), Step("look", 0, 1), Step("end", 1, 2)]
"""The child has changed its owner before the orphan waits for it."""
ENDED_UNDECIDED = [
    *BEGUN[:2],
    *(Step("spawn", 2, 1), Step("burn", 2, 36), Step("burn", 3, 18), Step("adopt", 1, 1), Step("look", 0, 1)),
    *(Step("end", 2, 0), Step("hide", 2, 1), Step("look", 0, 1), Step("end", 1, 2)),
]
"""The orphan ends while it is unknown which of its descendants it has waited for."""


@given(
    st.lists(
        st.builds(
            Step,
            st.sampled_from(
                ["spawn", "burn", "burn", "end", "ignored", "adopt", "hide", "look", "look", "torn", "move", "moved"]
            ),
            st.integers(0, 10**6),
            st.integers(1, 50),
        ),
        max_size=60,
    )
)
@settings(max_examples=400)
@example([Step("spawn", 0, 1), Step("burn", 1, 16), Step("look", 0, 1), Step("burn", 1, 6), Step("torn", 1, 2)])
@example(CONTAINER)
@example(ORPHAN_BEFORE_ITS_END_IS_REPORTED)
@example(PASSED_ON)
@example(ENDED_UNDECIDED)
def test_no_history_makes_the_sum_fall_or_exceed_what_was_used(steps):
    family = Adopting()
    for step in steps:
        family.play(step)
    for _ in range(6):
        family.look()
    sums = [total for total, _ in family.recorded_sums]
    assert sums == sorted(sums)
    for total, used in family.recorded_sums:
        assert total <= used + 1e-9


class Reporting:
    """Kernel that reports each end with the usage of the process alone; readings may be torn, and owners change."""

    def __init__(self):
        self.family = Adopting()
        self.owner: dict[int, str] = {}
        self.looked: dict[int, float] = {}  # usage of waited children at the last reading
        self.left: dict[int, ProcessReading[int, str]] = {}
        self.used = {"a": 0.0, "b": 0.0}
        self.sums: list[dict[str, float]] = []
        self.truths: list[dict[str, float]] = []

    def play(self, step):
        family = self.family
        alive = sorted(family.own)
        process = alive[step.number % len(alive)]
        if step.action == "spawn":
            family.spawn(process)
            self.owner[family.next - 1] = self.owner.get(process, "a")
        elif step.action == "burn":
            family.burn(process, float(step.amount))
            self.used[self.owner.get(process, "a")] += step.amount
        elif step.action in {"end", "ignored"} and process != 0:
            own, parent = family.own[process], family.parent[process]
            counted = own + self.looked.get(process, 0.0)
            self.left[process] = ProcessReading(self.owner[process], (counted,), parent)
            family.end(process, ignored=step.action == "ignored", late=0)
        elif step.action == "move" and process in self.looked:
            self.look()  # its owner keeps the usage until now
            self.owner[process] = "b"
        elif step.action == "look":
            self.look()

    def look(self):
        read = self.family.read(sorted(self.family.own))
        live = {one: replace(reading, owner=self.owner.get(one, "a")) for one, reading in read.items()}
        self.family.totals.update(live, left=self.left)
        self.left, self.looked = {}, dict(self.family.waited)
        totals = self.family.totals.get_totals()
        self.sums.append({owner: totals.get(owner, (0.0,))[0] for owner in "ab"})
        self.truths.append(dict(self.used))


@given(
    st.lists(
        st.builds(
            Step,
            st.sampled_from(["spawn", "spawn", "burn", "burn", "burn", "end", "ignored", "look", "move"]),
            st.integers(0, 10**6),
            st.integers(1, 50),
        ),
        max_size=60,
    )
)
@settings(max_examples=400)
def test_when_every_end_is_reported_each_owner_has_what_its_processes_used(steps):
    kernel = Reporting()
    for step in steps:
        kernel.play(step)
    for _ in range(3):
        kernel.look()
    assert kernel.sums[-1] == kernel.truths[-1]
    for before, after in pairwise(kernel.sums):
        assert all(before[owner] <= after[owner] for owner in "ab")
    for found, truth in zip(kernel.sums, kernel.truths, strict=True):
        assert all(found[owner] <= truth[owner] for owner in "ab")


def test_a_parent_does_not_count_what_its_child_used_for_an_earlier_owner():
    totals: ProcessTotals[int, str] = ProcessTotals(1)
    for owner, used in (("a", 5.0), ("b", 5.0), ("b", 8.0)):
        totals.update({0: ProcessReading("a", (1.0,)), 1: ProcessReading(owner, (used,), 0)})
    totals.update({0: ProcessReading("a", (9.0,))})
    assert totals.get_totals() == {"a": (6.0,), "b": (3.0,)}


@pytest.mark.parametrize("owner", ["a", "b"])
@pytest.mark.parametrize("torn", [False, True])
@given(late=st.integers(0, 3), used=st.integers(1, 40), more=st.integers(0, 9))
@settings(max_examples=25)
def test_an_orphan_whose_end_is_reported_late_by_another_owner_counts_its_child_once(owner, torn, late, used, more):
    family = Adopting()
    for step in BEGUN[:2]:
        family.play(step)
    family.parent[1] = None
    family.burn(2, float(used))
    family.look()
    family.burn(2, float(more))
    if torn:
        family.play(Step("torn", 2, 0))
    else:
        family.end(2, ignored=False, late=0)
    family.end(1, ignored=False, late=late)
    family.owner[1] = owner
    for _ in range(late + 3):
        family.look()
    assert family.recorded_sums[-1][0] == family.used
    assert all(total <= used for total, used in family.recorded_sums)


def test_what_a_process_used_before_it_joined_is_nobodys():
    totals: ProcessTotals[int, str] = ProcessTotals(1)
    totals.update({1: ProcessReading("a", (1.0,))})
    totals.update({1: ProcessReading("a", (2.0,)), 2: ProcessReading("a", (1000.0,), late=True)})
    assert totals.get_totals() == {"a": (2.0,)}
    totals.update({1: ProcessReading("a", (2.0,)), 2: ProcessReading("a", (1003.0,), late=True)})
    assert totals.get_totals() == {"a": (5.0,)}


@given(st.lists(st.integers(1, 9), min_size=1, max_size=5), st.integers(0, 3))
def test_an_orphan_whose_end_is_reported_late_counts_what_it_waited_for_once(amounts, late):
    """The descendants of an orphan end with it, each waited for by its parent."""
    family = Adopting()
    for parent, _ in enumerate(amounts):
        family.spawn(parent)
    family.parent[1] = None
    for process, amount in enumerate(amounts, 1):
        family.burn(process, float(amount))
    family.look()
    for process in range(len(amounts), 0, -1):
        family.end(process, ignored=False, late=late)
    for _ in range(late + 2):
        family.look()
    assert family.recorded_sums[-1][0] == family.used == sum(amounts)
    assert all(total <= used for total, used in family.recorded_sums)


@given(st.integers(1, 30), st.integers(0, 3))
def test_orphans_whose_end_is_reported_late_count_once(count, late):
    """A reaped process is gone immediately, and its final figures come some updates later."""
    family = Adopting()
    for _ in range(count):
        family.spawn(0)
    family.look()
    for one in range(1, count + 1):
        family.parent[one] = None
        family.burn(one, 1.5)
    family.look()
    for one in range(1, count + 1):
        family.burn(one, 0.5)
        family.end(one, ignored=False, late=late)
    for _ in range(late + 2):
        family.look()
    assert family.recorded_sums[-1][0] == family.used == 2.0 * count
    assert all(total <= used for total, used in family.recorded_sums)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=10))
def test_children_that_their_parent_ignores_count_although_the_parent_works(amounts):
    family = Adopting()
    for amount in amounts:
        family.spawn(0)
        family.burn(family.next - 1, float(amount))
    family.look()
    for one in range(1, len(amounts) + 1):
        family.end(one, ignored=True, late=0)
    family.burn(0, 1000.0)
    family.look()
    family.look()
    assert family.recorded_sums[-1][0] == family.used


OWNER = Owner("j", "worker-0")
PATH = (("cpuacct", "/a"),)


def cpu(seconds):
    return {OWNER: {PATH: CgroupUsage(cpu_seconds=seconds)}}


def test_a_group_without_a_process_for_a_while_is_counted_once():
    groups = GroupCounters()
    groups.update(cpu(1.6))
    groups.update({OWNER: {}})
    assert groups.sum_totals()[OWNER]["cpu"] == 1.6
    groups.update(cpu(2.2))
    assert groups.sum_totals()[OWNER]["cpu"] == 2.2
    groups.update({OWNER: {PATH: CgroupUsage(cpu_seconds=None)}})
    groups.update(cpu(2.3))
    assert groups.sum_totals()[OWNER]["cpu"] == 2.3


def test_a_group_that_was_made_again_goes_on():
    groups = GroupCounters()
    for seconds in (1.0, 5.0, 0.5, 2.0):
        groups.update(cpu(seconds))
    assert groups.sum_totals()[OWNER]["cpu"] == 7.0


@given(
    st.lists(
        st.tuples(
            st.sampled_from("abc"),
            st.integers(0, 9),
            st.sampled_from(["use", "look", "look"]),
            st.sets(st.sampled_from("abc")),
        ),
        max_size=40,
    )
)
def test_groups_that_are_sampled_now_and_then_sum_to_what_they_used(steps):
    groups, used, recorded_sums = GroupCounters(), dict.fromkeys("abc", 0.0), dict.fromkeys("abc", 0.0)
    last = 0.0
    for path, amount, action, empty in steps:
        if action == "use":
            used[path] += amount
            continue
        shown = {one: seconds for one, seconds in used.items() if one not in empty}
        recorded_sums.update(shown)
        groups.update(
            {OWNER: {(("cpuacct", one),): CgroupUsage(cpu_seconds=seconds) for one, seconds in shown.items()}}
        )
        total = groups.sum_totals().get(OWNER, {}).get("cpu", 0.0)
        assert last <= total == sum(recorded_sums.values())
        last = total
