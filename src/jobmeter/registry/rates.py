"""Token buckets that several servers share. Their levels are rows in PostgreSQL, and its clock fills them.

The table is not logged: after a crash of PostgreSQL every bucket is full.
"""

from collections.abc import Collection
from typing import NamedTuple

import msgspec
import sqlalchemy as sa

from jobmeter.registry.breaker import SHORT_SECONDS
from jobmeter.registry.database import Database

_FILLED = "least(excluded.burst, kept.level + greatest(0, excluded.moment - kept.moment) * excluded.per_second)"
_GRANTED = f"least(excluded.granted, greatest(0, floor({_FILLED})))"
# One statement, in the order of the names: a server that is stopped in it leaves no lock, and no two servers block each
# other. A moment far in the future comes from a clock that was set back since.
_DRAW = f"""
    INSERT INTO rate_buckets AS kept (name, level, moment, per_second, burst, granted, spent)
    SELECT name, burst - wanted - spent, {{now}}, per_second, burst, wanted, spent
    FROM unnest(CAST(:names AS text[]), CAST(:rates AS float8[]), CAST(:bursts AS float8[]),
                CAST(:wanted AS float8[]), CAST(:spent AS float8[])) AS given (name, per_second, burst, wanted, spent)
    ORDER BY name
    ON CONFLICT (name) DO UPDATE SET
        level = {_FILLED} - {_GRANTED} - excluded.spent,
        moment = CASE WHEN kept.moment > excluded.moment + 60 THEN excluded.moment
                 ELSE greatest(kept.moment, excluded.moment) END,
        per_second = excluded.per_second, burst = excluded.burst, granted = {_GRANTED}, spent = excluded.spent
    RETURNING name, granted, level
    """  # noqa: S608 - constants
_FULL = "DELETE FROM rate_buckets WHERE level + ({now} - moment) * per_second >= burst"


class Draw(msgspec.Struct, frozen=True):
    """Request to a bucket: ``wanted`` tokens if it has them, and ``spent`` ones in any case. At most ``burst`` each."""

    name: str
    per_second: float
    burst: float
    wanted: int = 0
    spent: float = 0.0


class GrantedTokens(NamedTuple):
    """Tokens that a bucket granted, and its level afterwards."""

    granted: int
    level: float


class RateTable:
    """Token buckets in PostgreSQL. Every method is one transaction; see ``Registry``."""

    now = "CAST(extract(epoch FROM clock_timestamp()) AS float8)"
    """SQL of the time in seconds."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def draw(self, draws: Collection[Draw]) -> dict[str, GrantedTokens]:
        """Take tokens from buckets, each named once. Return the result of each by its name."""
        values = {
            "names": [one.name for one in draws],
            "rates": [one.per_second for one in draws],
            "bursts": [one.burst for one in draws],
            "wanted": [float(min(one.wanted, int(one.burst))) for one in draws],
            "spent": [one.spent for one in draws],
        }
        with self._database.write(SHORT_SECONDS) as connection:
            rows = connection.execute(sa.text(_DRAW.format(now=self.now)), values)
            return {name: GrantedTokens(int(granted), level) for name, granted, level in rows}

    def forget_full(self) -> None:
        """Delete full buckets: a bucket without a row is full."""
        with self._database.write() as connection:
            connection.execute(sa.text(_FULL.format(now=self.now)))
