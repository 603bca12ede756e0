"""Tests of the times at which leases are checked: times in which no job could be heard do not count."""

from typing import TYPE_CHECKING, cast

import pytest
from tests.support.fakes import NOW, SetClock

from jobmeter.errors import UnavailableError
from jobmeter.server.background import make_loss_check as losses_of

if TYPE_CHECKING:
    from jobmeter.registry.base import Registry


class Asked:
    """Registry that records the calls to ``mark_lost``."""

    def __init__(self):
        self.rounds = []
        self.failing = False

    def mark_lost(self, now_ms, heard_since_ms, least_ms):
        if self.failing:
            raise UnavailableError("away")
        self.rounds.append((now_ms - NOW, heard_since_ms - NOW, least_ms))
        return 0


@pytest.fixture
def losses():
    registry, clock = Asked(), SetClock()
    return registry, clock, losses_of(cast("Registry", registry), clock, 60)


def test_leases_are_counted_from_the_first_round_on(losses):
    registry, clock, work = losses
    for _ in range(3):
        work.round()
        clock.time_ms += 10_000
    assert registry.rounds == [(0, 0, 60_000), (10_000, 0, 60_000), (20_000, 0, 60_000)]


@pytest.mark.parametrize("jump", [60_000, 8 * 3_600_000, -1])
def test_a_machine_that_slept_or_a_clock_that_jumped_begins_anew(losses, jump):
    registry, clock, work = losses
    work.round()
    clock.time_ms += jump
    work.round()
    assert registry.rounds[-1] == (jump, jump, 60_000)


def test_a_registry_that_was_away_begins_anew(losses):
    registry, clock, work = losses
    work.round()
    clock.time_ms += 10_000
    registry.failing = True
    with pytest.raises(UnavailableError):
        work.round()
    clock.time_ms += 10_000
    registry.failing = False
    work.round()
    assert registry.rounds[-1] == (20_000, 20_000, 60_000)


def test_it_looks_often_enough():
    assert losses_of(cast("Registry", Asked()), SetClock(), 60).interval == 10
    assert losses_of(cast("Registry", Asked()), SetClock(), 8).interval == 2
