"""Tests of marks of late hours while a roll-up or the engine is in the way."""

import threading

import pytest
from tests.store_contract.samples import FOREVER, batch_of

from jobmeter.errors import UnavailableError
from jobmeter.model.series import Series
from jobmeter.model.time import DAY, HOUR, MINUTE, SystemClock, floor_to, parse_time
from jobmeter.store.clickhouse.rollup_state import RollupState
from jobmeter.store.clickhouse.target import EngineTarget

START = parse_time("2026-01-01")
ONE = Series("gpu.power", job="one", replica="worker-0")
PAIR = (ONE.job_key, START)


def refuse(*_, **__):
    raise UnavailableError("the telemetry engine cannot store samples now: the disk is full")


@pytest.fixture
def store(empty_store):
    empty_store.append_all((batch_of({(ONE, START): 1.0}),), FOREVER)
    empty_store.roll_up(START + HOUR)
    return empty_store


def late(store, value):
    store.append_all((batch_of({(ONE, START + 1): value}),), FOREVER)


def stored(state):
    """Return the marks that a process which starts now would find."""
    fresh = RollupState(state.pool, EngineTarget(), SystemClock(), lambda: True)
    return {(mark.job, mark.hour) for mark in fresh.take()}


def test_marks_reach_the_engine_with_their_samples(store):
    state = store.rollup_state
    late(store, 2.0)
    assert state.find_marked([ONE.job_key]) == {PAIR}
    store.commit_log.flush()
    assert stored(state) == {PAIR}


def test_marks_do_not_grow_while_roll_ups_fail(store, monkeypatch):
    state = store.rollup_state
    late(store, 2.0)
    with monkeypatch.context() as patch:
        patch.setattr(store.rollup_job, "_flush", refuse)
        for value in range(5):
            with pytest.raises(UnavailableError):
                store.roll_up(START + HOUR)
            late(store, float(value))
    marks = state.take()
    assert len(marks) == 1
    state.give_back(marks)
    store.roll_up(START + HOUR)
    assert state.find_marked([ONE.job_key]) == set()
    assert stored(state) == set()


def test_marks_wait_for_an_engine_that_refuses_them(store, monkeypatch):
    state = store.rollup_state
    late(store, 2.0)
    with monkeypatch.context() as patch:
        patch.setattr(state, "_insert", refuse)
        with pytest.raises(UnavailableError):
            store.commit_log.flush()
    assert state.find_marked([ONE.job_key]) == {PAIR}
    store.commit_log.flush()
    assert stored(state) == {PAIR}


def test_samples_whose_mark_was_taken_are_acknowledged_with_a_durable_one(store):
    """Another writer's new mark of that hour may not have reached the engine yet."""
    state = store.rollup_state
    before = state.mark_before({PAIR})
    state.clear(state.take())
    state.mark_before({PAIR})
    assert stored(state) == set()
    state.mark_after({PAIR}, before)
    assert stored(state) == {PAIR}


def test_samples_of_an_hour_that_is_rolled_up_meanwhile_are_acknowledged_with_a_durable_mark(store):
    state = store.rollup_state
    before = state.mark_before(set())
    state.raise_intent(START + 2 * HOUR)
    state.mark_before({(ONE.job_key, START + HOUR)})
    assert stored(state) == set()
    state.mark_after({(ONE.job_key, START + HOUR)}, before)
    assert stored(state) == {(ONE.job_key, START + HOUR)}


def test_a_shared_engine_that_refuses_a_mark_is_left_without_it(store, monkeypatch):
    state = store.rollup_state
    monkeypatch.setattr(state, "_is_alone", lambda: False)
    with monkeypatch.context() as patch:
        patch.setattr(state, "_insert", refuse)
        for _ in range(3):
            with pytest.raises(UnavailableError):
                state.mark_before({PAIR})
    assert state.take() == []
    state.mark_before({PAIR})
    assert len(state.take()) == 1


def test_a_server_whose_reads_do_not_count_stores_no_hours_as_rolled_up(store, monkeypatch):
    """Another server may have become the only one since, with samples of these hours in its journal."""
    state = store.rollup_state
    done = state.read_done()
    with monkeypatch.context() as patch:
        patch.setattr(state.pool, "check", refuse)
        with pytest.raises(UnavailableError):
            state.raise_done(done + HOUR)
    state.reload()
    assert state.read_done() == done


def test_a_state_that_is_read_while_a_roll_up_begins_has_its_intent(store, monkeypatch):
    """A server becomes the only one just when it rolls up: its memory counts from then on."""
    state = store.rollup_state
    select, until_ms = state.select_progress, state.read_intent() + HOUR
    rolling = threading.Thread(target=state.raise_intent, args=(until_ms,))

    def select_beside_a_roll_up():
        found = select()
        rolling.start()
        rolling.join(0.3)  # the roll-up may still run
        return found

    monkeypatch.setattr(state, "select_progress", select_beside_a_roll_up)
    state.reload()
    rolling.join()
    assert state.read_intent() == until_ms


@pytest.mark.parametrize(("age_ms", "requests"), [(0, 1), (9 * MINUTE, 1), (11 * MINUTE, 2), (DAY, 2)])
def test_among_others_a_new_sample_costs_one_look_at_the_roll_ups(store, monkeypatch, age_ms, requests):
    state, found = store.rollup_state, []
    select = state.select_progress

    def counted():
        found.append(select())
        return found[-1]

    monkeypatch.setattr(state, "_is_alone", lambda: False)
    monkeypatch.setattr(state, "select_progress", counted)
    store.append_all((batch_of({(ONE, SystemClock().now_ms() - age_ms): 1.0}),), FOREVER)
    assert len(found) == requests


def test_a_new_sample_of_an_hour_that_is_rolled_up_is_marked_when_it_is_acknowledged(store, monkeypatch):
    """The clock of the server that rolls up is ahead, and this server has not seen its roll-up yet."""
    state, now_ms = store.rollup_state, SystemClock().now_ms()
    until_ms = floor_to(now_ms, HOUR) + HOUR
    select = state.select_progress
    monkeypatch.setattr(state, "_is_alone", lambda: False)
    monkeypatch.setattr(state, "select_progress", lambda: select() | {"intent": until_ms})
    assert state.compute_intent(now_ms) < now_ms
    store.append_all((batch_of({(ONE, now_ms): 1.0}),), FOREVER)
    assert (ONE.job_key, until_ms - HOUR) in stored(state)
    assert state.compute_intent(now_ms) == until_ms
