"""Marks of a move, in the table ``progress`` of both engines. So no server uses incomplete or abandoned data.

The destination has ``data of ID``: 1 while rows are missing, 2 once it is complete. The ID is that of the first engine.
The first engine has ``moved to NAME``: an odd number after the move, an even number once the move was cancelled.
"""

from collections.abc import Mapping
from typing import NamedTuple

from jobmeter.errors import ConfigurationError
from jobmeter.store.clickhouse.failures import translate_failures
from jobmeter.store.clickhouse.pool import Pool
from jobmeter.store.clickhouse.progress import read_progress, write_progress
from jobmeter.store.clickhouse.target import EngineTarget

ARRIVING, COMPLETE = 1, 2
_ARRIVAL, _DEPARTURE = "data of ", "moved to "


class MoveMarks(NamedTuple):
    """Marks of an engine: states of arrivals by ID, and numbers of departures by the name of the other engine."""

    arrivals: Mapping[str, int]
    departures: Mapping[str, int]

    @property
    def gone_to(self) -> str:
        """Return the engine that has the data now; empty if they are here."""
        return next((name for name, number in self.departures.items() if number % 2), "")


def read_marks(pool: Pool) -> MoveMarks:
    """Read the marks of an engine."""
    with translate_failures("read its marks"), pool.borrow_client() as client:
        marks = read_progress(client)
    return MoveMarks(
        {name.removeprefix(_ARRIVAL): value for name, value in marks.items() if name.startswith(_ARRIVAL)},
        {name.removeprefix(_DEPARTURE): value for name, value in marks.items() if name.startswith(_DEPARTURE)},
    )


def mark_arrival(pool: Pool, identity: str, state: int) -> None:
    """Store durably how much of the data of another engine is here."""
    _write(pool, _ARRIVAL + identity, state)


def mark_departure(pool: Pool, name: str, *, moved: bool) -> None:
    """Store durably that the data moved to another engine, or did not."""
    number = read_marks(pool).departures.get(name, 0)
    if bool(number % 2) != moved:
        _write(pool, _DEPARTURE + name, number + 1)


def require_usable(pool: Pool, target: EngineTarget) -> None:
    """Raise ConfigurationError if a server must not use an engine: its data are incomplete, or were moved."""
    marks = read_marks(pool)
    if marks.gone_to:
        raise ConfigurationError(
            f"the data of {target.name} were moved to {marks.gone_to}: start with --store and that address. To use "
            f"{target.name} again, without what was written there: jobmeter migrate-store --cancel"
        )
    if ARRIVING in marks.arrivals.values():
        raise ConfigurationError(
            f"the data of another store are not all in {target.name} yet: repeat the command jobmeter migrate-store, "
            "and start the server after it"
        )


def _write(pool: Pool, name: str, value: int) -> None:
    with translate_failures("write its marks"), pool.borrow_client() as client:
        write_progress(client, {name: value})
