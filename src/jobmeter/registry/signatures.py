"""Signatures that several servers accept: a signature that one of them accepted is refused by all.

While several servers use the registry, each accepted signature is a row here. A server that is alone remembers accepted
signatures in its memory. It writes its name into the row of ``signature_owner`` first; while a name is there, no other
server inserts signatures. The owner inserts its signatures before it clears the name. When it dies, another server
takes the name away, and sets the floor: all servers refuse signatures with earlier dates.
"""

from collections.abc import Collection

import msgspec
import sqlalchemy as sa

from jobmeter.model.time import MINUTE
from jobmeter.registry.breaker import SHORT_SECONDS
from jobmeter.registry.database import Database
from jobmeter.registry.schema import accepted_signatures, signature_owner

MOST = 1_000_000
"""Most signatures of all servers, about 80 MB. The oldest are deleted, and the floor is raised above them."""
_sign, _owner = accepted_signatures.c, signature_owner.c
# One statement: a server that is stopped in it leaves no lock. FOR SHARE waits for a change of the owner.
_ACCEPT = sa.text(
    """
    WITH allowed AS (SELECT floor FROM signature_owner WHERE owner IN ('', :owner) FOR SHARE),
    added AS (
        INSERT INTO accepted_signatures (minute, digest)
        SELECT given.minute, given.digest
        FROM unnest(CAST(:minutes AS bigint[]), CAST(:digests AS bigint[])) AS given (minute, digest), allowed
        ORDER BY 1, 2
        ON CONFLICT DO NOTHING RETURNING minute, digest
    )
    SELECT (SELECT floor FROM allowed), ARRAY(SELECT ARRAY[minute, digest] FROM added)
    """
)


class Signature(msgspec.Struct, frozen=True, order=True):
    """Signature of a request: the minute of its date, and 8 bytes of its key and nonce as a signed integer."""

    minute: int
    digest: int


class SignatureMemory(msgspec.Struct, frozen=True):
    """Signatures that servers accepted, and the first date (epoch ms) that is accepted."""

    signatures: Collection[Signature]
    floor_ms: int


class SignatureTable:
    """Accepted signatures of all servers, in PostgreSQL. Every method is one transaction; see ``Registry``."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def accept(self, signatures: Collection[Signature], owner: str) -> SignatureMemory | None:
        """Insert signatures, and return the new ones among them, with the floor.

        Return None, and insert nothing, while another server than ``owner`` has signatures in its memory.
        """
        given = sorted(set(signatures))
        values = {"owner": owner, "minutes": [one.minute for one in given], "digests": [one.digest for one in given]}
        with self._database.write(SHORT_SECONDS) as connection:
            floor, added = connection.execute(_ACCEPT, values).one()
        if floor is None:
            return None
        return SignatureMemory({Signature(minute, digest) for minute, digest in added}, floor)

    def take_ownership(self, owner: str, now_ms: int, since_minute: int) -> SignatureMemory:
        """Make a server the owner. Return the signatures that all servers accepted, dated from a minute on.

        If another server was the owner, which has ended, signatures with dates before now are refused.
        """
        floor = sa.case((_owner.owner.in_(["", owner]), _owner.floor), else_=sa.func.greatest(_owner.floor, now_ms))
        with self._database.write() as connection:
            floor_ms = connection.scalar(
                sa.update(signature_owner).values(owner=owner, floor=floor).returning(_owner.floor)
            )
            rows = connection.execute(sa.select(_sign.minute, _sign.digest).where(_sign.minute >= since_minute))
            return SignatureMemory({Signature(minute, digest) for minute, digest in rows}, floor_ms or 0)

    def disown(self, owner: str) -> None:
        """End the ownership of a server whose signatures are all inserted."""
        with self._database.write(SHORT_SECONDS) as connection:
            connection.execute(sa.update(signature_owner).values(owner="").where(_owner.owner == owner))

    def take_over(self, own: str, now_ms: int) -> None:
        """End the ownership of another server, which has ended. Signatures with dates before now are then refused."""
        with self._database.write(SHORT_SECONDS) as connection:
            connection.execute(
                sa.update(signature_owner)
                .values(owner="", floor=sa.func.greatest(_owner.floor, now_ms))
                .where(_owner.owner.not_in(["", own]))
            )

    def forget(self, before_minute: int, most: int = MOST) -> None:
        """Delete signatures with earlier dates. Delete the oldest minutes past ``most``, and raise the floor."""
        with self._database.write() as connection:
            connection.execute(sa.delete(accepted_signatures).where(_sign.minute < before_minute))
            counted = sa.select(_sign.minute, sa.func.count()).group_by(_sign.minute).order_by(_sign.minute.desc())
            total = 0
            for minute, count in connection.execute(counted).all():
                total += count
                if total > most:
                    floor = sa.func.greatest(_owner.floor, (minute + 1) * MINUTE)
                    connection.execute(sa.update(signature_owner).values(floor=floor))
                    connection.execute(sa.delete(accepted_signatures).where(_sign.minute <= minute))
                    break
