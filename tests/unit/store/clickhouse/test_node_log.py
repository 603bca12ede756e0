"""Tests of a ClickHouse node's log without a node: a pool that counts inserts, a roll-up state that lists its marks."""

from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import pytest
from tests.unit.store.rows import rows_of

from jobmeter.errors import UnavailableError
from jobmeter.model.time import HOUR
from jobmeter.store.clickhouse.node_log import NodeLog


class Node:
    """Pool whose only connection runs a function at each insert."""

    def __init__(self):
        self.inserts = []
        self.on_insert = lambda: None

    @contextmanager
    def borrow_client(self):
        yield self

    def raw_insert(self, table, *_, **__):
        self.on_insert()
        self.inserts.append(table)


class State:
    """Marks of late hours, and the time before which samples need them."""

    def __init__(self):
        self.before = 0
        self.marks = []

    def read_intent(self):
        return self.before

    def mark_before(self, hours):
        self.marks.append(("before", set(hours)))

    def mark_after(self, hours, _):
        self.marks.append(("after", set(hours)))

    def write_marks(self):
        pass

    def reload(self):
        pass


class Names:
    """Catalog without cached names."""

    def forget(self):
        pass

    def lacks_descriptor(self, keys):
        return np.zeros(len(keys), np.bool_)


@pytest.fixture
def node():
    return Node()


@pytest.fixture
def state():
    return State()


def opened(node, state, folder):
    names: Any = Names()
    log = NodeLog(node, folder)
    log.bind(state, names)
    return log


@pytest.fixture
def log(node, state, tmp_path):
    log = opened(node, state, tmp_path / "journal")
    log.recover(tmp_path / "journal")
    log.lead()
    log.note_alone(alone=True)
    yield log
    node.on_insert = lambda: None
    log.close()


@pytest.mark.parametrize("fails", [False, True])
def test_a_listener_that_comes_while_others_come_does_not_trust_its_memory_afterwards(log, node, fails):
    """A server opens its window while another one starts, and its journal goes to the node meanwhile."""
    heard: list[bool] = []

    def come():
        if not heard:
            log.watch(heard.append)
        if fails:
            raise UnavailableError("the node is away")

    log.append([rows_of([(1, 5, 1.0)])])
    node.on_insert = come
    with suppress(UnavailableError):
        log.be_among_others()
    assert heard[0] is False
    assert heard[-1] is log.is_alone is fails


def test_an_expelled_server_inserts_its_journal_only_once_no_other_server_may_insert_it(log, node):
    log.append([rows_of([(1, 5, 1.0)])])
    log.be_idle()
    with pytest.raises(UnavailableError):
        log.flush()  # as the journal's thread does
    assert not node.inserts
    log.be_among_others()
    assert node.inserts == ["samples"]


def test_recovered_hours_are_marked_though_a_roll_up_begins_with_them_meanwhile(node, state, tmp_path):
    dead = opened(node, state, tmp_path / "dead")
    dead.recover(tmp_path / "dead")
    dead.lead()

    def refuse():
        raise UnavailableError("the node is away")

    node.on_insert = refuse
    dead.append([rows_of([(1, HOUR, 1.0), (1, 3 * HOUR, 1.0)])])
    dead.close()  # the rows stay in the journal

    def begin_roll_up():
        state.before = 2 * HOUR

    node.on_insert = begin_roll_up
    log = opened(node, state, tmp_path / "journal")
    log.recover(tmp_path / "dead")
    kind, hours = state.marks[-1]
    assert kind == "after"
    assert {hour for _, hour in hours} == {HOUR}


def test_a_changed_record_is_acknowledged_only_in_a_role_in_which_no_other_server_may_lead_unheard(
    node, state, tmp_path
):
    log = opened(node, state, tmp_path)
    dropped: list[list[str]] = []
    log.hear(dropped.append)
    with pytest.raises(UnavailableError):
        log.announce(["job"])  # the server has no role yet
    assert log.get_membership() is None
    log.recover(tmp_path)
    log.lead()
    first = log.get_membership()
    log.announce(["job"])
    assert dropped == [["job"]]
    log.be_among_others()
    assert log.get_membership() is None
    log.announce(["job"])  # servers without a leader read the changes before each answer
    log.check = log.be_idle  # it is expelled in the meantime
    with pytest.raises(UnavailableError):
        log.announce(["job"])
    log.check = lambda: None
    log.lead()
    assert log.get_membership() not in {None, first}
