"""Log shippers: their rows, the numbers of their lines, and how far each has come."""

from collections.abc import Sequence
from typing import Protocol

import sqlalchemy as sa

from jobmeter.model.shipper import Progress, Shipper
from jobmeter.registry.breaker import SHORT_SECONDS
from jobmeter.registry.database import Database
from jobmeter.registry.schema import shippers


class Shippers(Protocol):
    """What the registry has of log shippers. Every method is one transaction; see ``Registry``."""

    def add(self, shipper: Shipper) -> None:
        """Add a shipper. Raises ConflictError where its project and resource group have one."""
        ...

    def all(self) -> Sequence[Shipper]:
        """Every shipper, by creation."""
        ...

    def remove(self, shipper_id: str) -> Shipper | None:
        """Forget a shipper; gives what it was, None where there is none."""
        ...

    def reserve(self, shipper_id: str, count: int) -> int | None:
        """The first of so many numbers that follow each other and that nobody else has; None: the shipper is gone."""
        ...

    def advance(self, shipper_id: str, progress: Progress, now_ms: int) -> bool:
        """Write down how far a shipper came; False, and nothing is written, where its cursor is another one by now."""
        ...


class SqlShippers(Shippers):
    """See ``Shippers``."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, shipper: Shipper) -> None:
        """See ``Shippers.add``."""
        with self._database.write() as connection:
            values = {name: getattr(shipper, name) for name in shipper.__struct_fields__}
            connection.execute(sa.insert(shippers).values(values))

    def all(self) -> Sequence[Shipper]:
        """See ``Shippers.all``."""
        with self._database.read(SHORT_SECONDS) as connection:
            rows = connection.execute(sa.select(shippers).order_by(shippers.c.created, shippers.c.id)).mappings()
            return [_shipper(row) for row in rows]

    def remove(self, shipper_id: str) -> Shipper | None:
        """See ``Shippers.remove``."""
        with self._database.write() as connection:
            gone = sa.delete(shippers).where(shippers.c.id == shipper_id).returning(*shippers.c)
            row = connection.execute(gone).mappings().first()
            return None if row is None else _shipper(row)

    def reserve(self, shipper_id: str, count: int) -> int | None:
        """See ``Shippers.reserve``."""
        more = sa.update(shippers).where(shippers.c.id == shipper_id).values(reserved=shippers.c.reserved + count)
        with self._database.write(SHORT_SECONDS) as connection:
            last = connection.execute(more.returning(shippers.c.reserved)).scalar()
            return None if last is None else int(last) - count + 1

    def advance(self, shipper_id: str, progress: Progress, now_ms: int) -> bool:
        """See ``Shippers.advance``."""
        counts = {name: shippers.c[name] + getattr(progress, name) for name in _COUNTS}
        moved = (
            sa.update(shippers)
            .where(shippers.c.id == shipper_id, shippers.c.cursor == progress.before)
            .values(
                {
                    **counts,
                    "cursor": progress.cursor,
                    "error": progress.error,
                    "oldest": progress.oldest,
                    "updated": now_ms,
                }
            )
        )
        with self._database.write(SHORT_SECONDS) as connection:
            return connection.execute(moved.returning(shippers.c.id)).first() is not None


_COUNTS = ("shipped", "dropped", "rejected", "failures")


def _shipper(row: sa.RowMapping) -> Shipper:
    return Shipper(**{name: row[name] for name in Shipper.__struct_fields__})
