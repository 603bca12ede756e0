"""Sums over processes that come and go, against a simulation that knows the truth."""

from hypothesis import given
from hypothesis import strategies as st

from jobmeter.collect.process.totals import Reading, Totals


class Kernel:
    """A family of processes as the kernel keeps it: a counter holds the process and the children it waited for."""

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
        return {p: Reading(owner, (self.counted[p],), self.parent[p]) for p in self.counted}


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["spawn", "burn", "end", "look"]),
        st.integers(0, 10**6),
        st.integers(1, 50),
    ),
    max_size=60,
)


def play(steps, *, waited_for, leaves_only=False):
    kernel, seen = Kernel(), []
    totals: Totals[int, str] = Totals(1)
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
            seen.append((totals.totals()["a"][0], kernel.used))
    totals.update(kernel.readings())
    seen.append((totals.totals()["a"][0], kernel.used))
    return seen


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
    totals: Totals[int, str] = Totals(1)
    totals.update(kernel.readings())
    for amount in amounts:
        kernel.spawn(0)
        kernel.burn(kernel.next - 1, float(amount))
        kernel.end(kernel.next - 1, waited_for=True)
    totals.update(kernel.readings())
    assert totals.totals()["a"] == (float(sum(amounts)),)


def test_a_child_that_nobody_waited_for_is_kept():
    totals: Totals[int, str] = Totals(1)
    totals.update({1: Reading("a", (1.0,)), 2: Reading("a", (5.0,), 1)})
    totals.update({1: Reading("a", (1.0,))})
    assert totals.totals()["a"] == (6.0,)


def test_a_parent_of_another_owner_does_not_count_what_it_waited_for():
    totals: Totals[int, str] = Totals(1)
    totals.update({1: Reading("a", (1.0,)), 2: Reading("b", (5.0,), 1)})
    totals.update({1: Reading("a", (6.5,))})
    assert totals.totals() == {"a": (1.5,), "b": (5.0,)}
    totals.update({1: Reading("a", (7.0,))})
    assert totals.totals() == {"a": (2.0,), "b": (5.0,)}


def test_final_figures_replace_what_was_seen():
    totals: Totals[int, str] = Totals(1)
    totals.update({1: Reading("a", (1.0,)), 2: Reading("a", (3.0,), 1)})
    totals.update({}, {1: Reading("a", (4.5,))})
    assert totals.totals()["a"] == (4.5,)  # 1 had waited for 2: 1 + 3, and a little more


def test_final_figures_of_what_was_never_seen_count():
    totals: Totals[int, str] = Totals(2)
    totals.update({}, {1: Reading("a", (0.2, 7.0))})
    assert totals.totals()["a"] == (0.2, 7.0)
    totals.update({})
    assert totals.totals()["a"] == (0.2, 7.0)


def test_what_is_forgotten_is_gone():
    totals: Totals[int, str] = Totals(1)
    totals.update({1: Reading("a", (1.0,))})
    totals.update({})
    totals.forget(["a"])
    assert totals.totals() == {}
