"""Messages between a leader and its followers, see ``jobmeter.store.clickhouse.membership``.

Lists of series repeat. A sender numbers each list, and sends its series once in an *epoch*.
"""

from collections.abc import Sequence
from typing import Any, Generic, TypeVar

import msgspec
import numpy as np

from jobmeter.model.batch import SampleBatch, SeriesKeys
from jobmeter.model.retention import Retention
from jobmeter.model.series import Series
from jobmeter.store.clickhouse.descriptors import Descriptors
from jobmeter.store.clickhouse.replica_state import ReplicaSetState
from jobmeter.store.clickhouse.rows import SampleRuns

T = TypeVar("T")
Failure = tuple[str, str, int | None]
"""Name of an error's class, its message, and its ``retry_after_ms``."""
_MOST_LISTS, _MOST_SERIES = 4_096, 200_000


class Hello(msgspec.Struct, tag=0, array_like=True, frozen=True):
    """First message of a server that wants to follow: its number, and the secret from the leader's row."""

    server: int
    secret: str


class Ping(msgspec.Struct, tag=1, array_like=True, frozen=True):
    """Question for a sign of life."""

    number: int


class Pong(msgspec.Struct, tag=2, array_like=True, frozen=True):
    """Sign of life: the answer to the ``Ping`` of that number."""

    number: int


class Join(msgspec.Struct, tag=3, array_like=True, frozen=True):
    """Request for the samples that the engine may lack."""


class ReadyToFollow(msgspec.Struct, tag=4, array_like=True, frozen=True):
    """Report that the follower has all samples that were sent before ``CaughtUp``."""


class Confirm(msgspec.Struct, tag=5, array_like=True, frozen=True):
    """Report that the follower's memory has everything up to a position."""

    position: int


class PackedBatch(msgspec.Struct, array_like=True, frozen=True):
    """Samples of a ``SampleBatch``. ``series`` is None if the list was sent before."""

    number: int
    series: list[Series] | None
    index: bytes
    time: bytes
    value: bytes


class Append(msgspec.Struct, tag=6, array_like=True, frozen=True):
    """Request to store batches."""

    number: int
    epoch: int
    batches: list[PackedBatch]
    retention: Retention


class LeaderCommand(msgspec.Struct, tag=7, array_like=True, frozen=True):
    """Request to run a command of the leader: ``flush``, ``roll_up``, ``delete_job``, or one with a content.

    ``content`` has the ids of jobs (``announce``), or rows; see ``led_tables``.
    """

    number: int
    name: str
    argument: int | None
    content: bytes = b""


class Accepted(msgspec.Struct, tag=0, array_like=True, frozen=True):
    """Answer to ``Hello``: the server may join."""


class Refused(msgspec.Struct, tag=3, array_like=True, frozen=True):
    """Answer to ``Hello``: the server may not join now."""


class Runs(msgspec.Struct, array_like=True, frozen=True):
    """Samples of a ``SampleRuns``. ``keys`` are the bytes of job keys and series ids, None if sent before."""

    number: int
    keys: tuple[bytes, bytes] | None
    count: bytes
    time: bytes
    value: bytes
    retention: Retention
    descriptors: bytes


class Copy(msgspec.Struct, tag=4, array_like=True, frozen=True):
    """Samples that the leader's journal has. Hours before ``intent`` may be rolled up."""

    position: int
    epoch: int
    intent: int
    runs: list[Runs]


class Flushed(msgspec.Struct, tag=5, array_like=True, frozen=True):
    """Report that the engine has the first ``blocks`` of the copied blocks."""

    blocks: int


class DataChanged(msgspec.Struct, tag=6, array_like=True, frozen=True):
    """Report that other data of some jobs changed. With ``dropped`` their samples in memory are void.

    ``jobs`` None: all jobs. ``records`` are the ids of jobs whose records changed.
    """

    position: int
    jobs: Sequence[int] | None
    dropped: bool
    records: Sequence[str]


class CaughtUp(msgspec.Struct, tag=7, array_like=True, frozen=True):
    """Report that all samples that ``Join`` requested were sent."""


class Welcome(msgspec.Struct, tag=8, array_like=True, frozen=True):
    """Report that nothing is acknowledged without this follower from now on."""


class Done(msgspec.Struct, tag=9, array_like=True, frozen=True):
    """Result of an ``Append`` or a ``LeaderCommand``."""

    number: int
    value: int
    failure: Failure | None


class CompleteReplicas(msgspec.Struct, tag=10, array_like=True, frozen=True):
    """Record of the replicas that have all data. The follower reads no others from now on."""

    position: int
    record: ReplicaSetState


ToLeader = Hello | Ping | Pong | Join | ReadyToFollow | Confirm | Append | LeaderCommand
ToFollower = (
    Accepted | Ping | Pong | Refused | Copy | Flushed | DataChanged | CaughtUp | Welcome | Done | CompleteReplicas
)
READ_BY_LEADER = msgspec.msgpack.Decoder(ToLeader)
READ_BY_FOLLOWER = msgspec.msgpack.Decoder(ToFollower)


class SentLists(Generic[T]):
    """Numbers of the lists that were sent. For one thread at a time."""

    def __init__(self) -> None:
        self.epoch = 0
        self._numbers: dict[int, tuple[T, int]] = {}  # by identity; the object lives as long as its number
        self._series = 0

    def restart(self) -> None:
        """Begin an epoch: each list is sent again."""
        self.epoch += 1
        self._numbers = {}
        self._series = 0

    def number(self, one: T, size: int) -> tuple[int, bool]:
        """Return the number of a list, and True if it was not sent yet. ``make_room`` first."""
        known = self._numbers.get(id(one))
        if known is not None:
            return known[1], False
        self._series += size
        self._numbers[id(one)] = one, len(self._numbers)
        return len(self._numbers) - 1, True

    def make_room(self) -> None:
        """Begin an epoch if there are many lists."""
        if len(self._numbers) > _MOST_LISTS or self._series > _MOST_SERIES:
            self.restart()


class ReceivedLists(Generic[T]):
    """Lists of the current epoch by number. For one thread at a time."""

    def __init__(self) -> None:
        self._epoch = -1
        self._lists: dict[int, T] = {}

    def take(self, epoch: int, number: int, sent: T | None) -> T:
        """Return a list: ``sent`` if it was sent now."""
        if epoch != self._epoch:
            self._epoch, self._lists = epoch, {}
        if sent is not None:
            self._lists[number] = sent
        return self._lists[number]


def pack_runs(rows: SampleRuns, lists: SentLists[SeriesKeys]) -> Runs:
    """Return the message of some rows."""
    number, is_new = lists.number(rows.keys, len(rows.keys))
    described = b"" if rows.descriptors is None else b"\n".join(rows.descriptors.lines)
    keys = (rows.job.tobytes(), rows.series.tobytes()) if is_new else None
    return Runs(
        number, keys, rows.count.tobytes(), rows.time.tobytes(), rows.value.tobytes(), rows.retention, described
    )


def unpack_runs(runs: Runs, epoch: int, lists: ReceivedLists[SeriesKeys]) -> SampleRuns:
    """Return the rows of a message."""
    sent = runs.keys
    made = None if sent is None else SeriesKeys(_read(sent[0], np.uint64), _read(sent[1], np.uint64))
    keys = lists.take(epoch, runs.number, made)
    described = Descriptors.parse(runs.descriptors) if runs.descriptors else None
    count, time, value = _read(runs.count, np.int64), _read(runs.time, np.int64), _read(runs.value, np.float64)
    return SampleRuns(keys, count, time, value, runs.retention, None, described)


def pack_batches(
    number: int, batches: Sequence[SampleBatch], retention: Retention, lists: SentLists[SeriesKeys]
) -> Append:
    """Return the message of some batches."""
    lists.make_room()
    packed: list[PackedBatch] = []
    for batch in batches:
        place, is_new = lists.number(batch.keys, len(batch.keys))
        series = list(batch.series) if is_new else None
        packed.append(PackedBatch(place, series, batch.index.tobytes(), batch.time.tobytes(), batch.value.tobytes()))
    return Append(number, lists.epoch, packed, retention)


def unpack_batches(message: Append, lists: "ReceivedLists[SampleBatch]") -> list[SampleBatch]:
    """Return the batches of a message."""
    found: list[SampleBatch] = []
    for one in message.batches:
        sent = one.series
        # A batch without samples holds the list and its keys: repeated lists are the identical objects.
        like = lists.take(message.epoch, one.number, None if sent is None else _list_of(sent))
        columns = _read(one.index, np.uint32), _read(one.time, np.int64), _read(one.value, np.float64)
        found.append(SampleBatch(like.series, *columns, like.keys))
    return found


def _list_of(series: Sequence[Series]) -> SampleBatch:
    return SampleBatch(series, np.empty(0, np.uint32), np.empty(0, np.int64), np.empty(0))


def _read(data: bytes, kind: Any) -> Any:  # noqa: ANN401 - NumPy's types
    return np.frombuffer(data, kind)
