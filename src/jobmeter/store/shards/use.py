"""Use of the shards of a store by several servers: on each shard one server leads, not always the same one.

Each shard has its own agreement, journal and connections, as a store without shards has. If a server dies while a shard
is away, another server succeeds it on the other shards at once, and on that shard when it is back.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING

from jobmeter.errors import UnavailableError
from jobmeter.model.batch import SampleBatch
from jobmeter.model.retention import Retention
from jobmeter.store.mirror import MirroredMemory
from jobmeter.store.shards.shard import Shard, ShardEngine, ShardSet, ask_all
from jobmeter.store.shards.split import split_batches

if TYPE_CHECKING:
    from jobmeter.store.base import EngineUse

_RETRY_AFTER_MS = 1_000


class ShardUse:
    """Use of all shards by other servers. See ``jobmeter.store.base.EngineUse``."""

    def __init__(self, placement: ShardSet) -> None:
        self._placement = placement
        self._uses: dict[int, EngineUse] = {}
        self._counting = threading.Lock()  # guards the next three attributes
        self._alone: dict[int, bool] = {}
        self._listeners: list[Callable[[bool], None]] = []
        self._announced = False
        self._trusted: dict[int, bool] = {}
        self._trusting = threading.Lock()
        self._memory: MirroredMemory | None = None
        self._drop: Callable[[Sequence[str]], None] = lambda _: None

    def add(self, shard: Shard) -> None:
        """Include a shard that is open."""
        use = None if shard.engine is None else shard.engine.engine_use
        if use is not None and shard.engine is not None:
            number = self._placement.shards.index(shard)
            use.hear(lambda jobs: self._drop(jobs))  # noqa: PLW0108 - it is set later
            if self._memory is not None:
                use.mirror(ShardMemory(self._memory, shard.engine, partial(self._trust, number)))
            self._uses[number] = use
            use.watch(partial(self._note_alone, number))

    def watch(self, changed: Callable[[bool], None]) -> None:
        """Call a function with True while no other server uses any shard and all are open, now and after changes."""
        with self._counting:
            self._listeners.append(changed)
            changed(self._announced)

    def _note_alone(self, number: int, alone: bool) -> None:
        with self._counting:
            self._alone[number] = alone
            every = len(self._alone) == len(self._placement.shards) and all(self._alone.values())
            if every != self._announced:
                self._announced = every
                for listener in self._listeners:
                    listener(every)

    @property
    def is_following(self) -> bool:
        """True while samples of some shard go to a leading server."""
        return any(use.is_following for use in list(self._uses.values()))

    def forward(self, batches: Sequence[SampleBatch], retention: Retention) -> Sequence[SampleBatch]:
        """Have the leaders of shards store batches. Return the batches of shards that this server does not follow."""
        followed = {number: use for number, use in list(self._uses.items()) if use.is_following}
        if not followed:
            return batches
        with self._placement.keep_placement() as count:
            parts = split_batches(batches, count)
            own = {number: part for number, part in parts.items() if number in followed}
            left = ask_all(self._placement.shards, own, partial(_forward, retention), journaled=True)
        return [batch for number, part in parts.items() for batch in left.get(number, part)]

    @contextmanager
    def confirm(self) -> Iterator[None]:
        """Wait at the end of the block until every follower on any shard has what was stored inside."""
        with ExitStack() as stack:
            for use in list(self._uses.values()):
                stack.enter_context(use.confirm())
            yield

    def mirror(self, memory: MirroredMemory) -> None:
        """Let a memory answer while this server leads or follows on each open shard."""
        self._memory = memory
        for number, use in list(self._uses.items()):
            engine = self._placement.shards[number].engine
            if engine is not None:
                use.mirror(ShardMemory(memory, engine, partial(self._trust, number)))

    def _trust(self, number: int, trusted: bool) -> None:
        with self._trusting:
            self._trusted[number] = trusted
            if self._memory is not None:
                self._memory.trust(trusted=all(self._trusted.get(one) for one in self._uses | {number: None}))

    def get_valid_until(self) -> float:
        """Return the time until which a trusted memory has every sample of the open shards."""
        return min((use.get_valid_until() for use in list(self._uses.values())), default=float("-inf"))

    def get_membership(self) -> int | None:
        """Return a number while this server is in the groups of all shards, else None. See ``RecordGroup``."""
        numbers = [use.get_membership() for use in list(self._uses.values())]
        known = [number for number in numbers if number is not None]
        return sum(known) if len(known) == len(self._placement.shards) else None

    def announce(self, jobs: Sequence[str]) -> None:
        """Return when no server answers from earlier records of jobs with these ids. See ``RecordGroup``.

        A server that uses its cached records is in the groups of all shards. So any one of them reaches it.
        """
        uses = list(self._uses.values())
        member = next((use for use in uses if use.get_membership() is not None), None)
        for use in uses if member is None else (member,):
            use.announce(jobs)

    def hear(self, drop: Callable[[Sequence[str]], None]) -> None:
        """Call a function with the ids of jobs whose records another server has changed."""
        self._drop = drop

    def check(self) -> None:
        """Raise UnavailableError while another server may be the only one on all shards."""
        failure = UnavailableError("no shard of the telemetry store is open", _RETRY_AFTER_MS)
        for use in list(self._uses.values()):
            try:
                use.check()
            except UnavailableError as error:
                failure = error
            else:
                return
        raise failure


class ShardMemory:
    """Memory of all shards, as one of them uses it. See ``MirroredMemory``."""

    def __init__(self, memory: MirroredMemory, engine: ShardEngine, trust: Callable[[bool], None]) -> None:
        self._memory = memory
        self._engine = engine
        self._trust = trust
        self.append_all, self.apply = memory.append_all, memory.apply
        self.invalidate, self.renew = memory.invalidate, memory.renew

    def trust(self, *, trusted: bool) -> None:
        """Note whether this server leads or follows on the shard."""
        self._trust(trusted)

    def roll_up(self, until_ms: int) -> int:
        """Compute missing roll-ups of the shard. Return the number of hours computed."""
        self._memory.apply((), until_ms)  # first: see ``WindowedStore.roll_up``
        hours = self._engine.roll_up(until_ms)
        if hours:
            self._memory.invalidate(None, dropped=False)
        return hours

    def delete_job(self, job: int) -> None:
        """Delete everything of a job key on the shard."""
        try:
            self._engine.delete_job(job)
        finally:
            self._memory.invalidate((job,), dropped=True)


def _forward(retention: Retention, engine: ShardEngine, batches: Sequence[SampleBatch]) -> Sequence[SampleBatch]:
    use = engine.engine_use
    return batches if use is None else use.forward(batches, retention)
