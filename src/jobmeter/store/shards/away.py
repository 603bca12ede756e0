"""Answers that may lack the rows of shards that are away. A caller has to ask for such an answer, and to say so."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from jobmeter.model.series import NO_JOB
from jobmeter.store.damage import DamagedPart
from jobmeter.store.shards.placement import find_shard


@dataclass(frozen=True, slots=True, kw_only=True)
class AwayShard(DamagedPart):
    """A shard that cannot be read now; ``shard`` counts from 0."""

    shard: int
    count: int

    @classmethod
    def describe(cls, shard: int, count: int) -> "AwayShard":
        """Describe a shard."""
        name = f"{shard + 1} of {count}"
        return cls(table="shards", name=name, reason="its servers do not answer", shard=shard, count=count)

    def may_concern(self, job: int) -> bool:
        """Return True if it has the rows of that job key. Rows without a job are on every shard."""
        return job == NO_JOB or find_shard(job, self.count) == self.shard


class MissingShards:
    """Shards whose rows answers may lack. Shards that were left out are a part of them."""

    def __init__(self, may: Iterable[AwayShard]) -> None:
        self.may = {one.shard: one for one in may}
        self.left_out: dict[int, AwayShard] = {}

    def leave_out(self, shard: int) -> bool:
        """Note that a shard is left out. Return False if it must not be."""
        if shard in self.may:
            self.left_out[shard] = self.may[shard]
        return shard in self.may


_missing: ContextVar[MissingShards | None] = ContextVar("missing_shards", default=None)


@contextmanager
def may_lack(parts: Iterable[DamagedPart]) -> Iterator[MissingShards]:
    """Let answers inside the block lack the rows of the shards among some parts, unless they would lack all rows.

    A shard that goes away during the block still fails a call: what was cached before it went away is complete.
    """
    missing = MissingShards(part for part in parts if isinstance(part, AwayShard))
    token = _missing.set(missing if missing.may else None)
    try:
        yield missing
    finally:
        _missing.reset(token)


def get_missing_shards() -> MissingShards | None:
    """Return the shards that answers may lack here; None if answers must be complete."""
    return _missing.get()
