"""Log shippers: their rows, the numbers of their lines, and their progress."""

from collections.abc import Sequence

import msgspec
import sqlalchemy as sa

from jobmeter.model.shipper import Progress, Shipper
from jobmeter.registry.breaker import SHORT_SECONDS
from jobmeter.registry.database import Database
from jobmeter.registry.schema import shippers

_COUNTS = ("shipped", "dropped", "rejected", "failures")


class Shippers:
    """Log shippers in the database. Every method is one transaction; see ``Registry``."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, shipper: Shipper) -> None:
        """Add a shipper. Raises ConflictError if its project and resource group already have one."""
        with self._database.write() as connection:
            connection.execute(sa.insert(shippers).values(msgspec.structs.asdict(shipper)))

    def list_shippers(self) -> Sequence[Shipper]:
        """Return every shipper, by creation."""
        with self._database.read(SHORT_SECONDS) as connection:
            rows = connection.execute(sa.select(shippers).order_by(shippers.c.created, shippers.c.id))
            return [msgspec.convert(row, Shipper, from_attributes=True) for row in rows]

    def remove(self, shipper_id: str) -> Shipper | None:
        """Delete a shipper. Return its last values, None for an unknown id."""
        with self._database.write() as connection:
            gone = sa.delete(shippers).where(shippers.c.id == shipper_id).returning(*shippers.c)
            row = connection.execute(gone).first()
            return None if row is None else msgspec.convert(row, Shipper, from_attributes=True)

    def reserve(self, shipper_id: str, count: int) -> int | None:
        """Reserve ``count`` consecutive numbers. Return the first; None if the shipper was deleted."""
        more = sa.update(shippers).where(shippers.c.id == shipper_id).values(reserved=shippers.c.reserved + count)
        with self._database.write(SHORT_SECONDS) as connection:
            last = connection.execute(more.returning(shippers.c.reserved)).scalar()
            return None if last is None else int(last) - count + 1

    def advance(self, shipper_id: str, progress: Progress, now_ms: int) -> bool:
        """Store the progress of a shipper. Return False, and write nothing, if its cursor has changed meanwhile."""
        counts = {name: shippers.c[name] + getattr(progress, name) for name in _COUNTS}
        moved = (
            sa.update(shippers)
            .where(shippers.c.id == shipper_id, shippers.c.cursor == progress.before)
            .values(**counts, cursor=progress.cursor, error=progress.error, oldest=progress.oldest, updated=now_ms)
        )
        with self._database.write(SHORT_SECONDS) as connection:
            return connection.execute(moved.returning(shippers.c.id)).first() is not None
