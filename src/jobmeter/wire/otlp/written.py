"""The samples of a request as columns, and the ``Builder`` that collects them."""

import bisect
import itertools
import struct
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from hashlib import blake2b
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from jobmeter.errors import InvalidRequestError, LimitExceededError
from jobmeter.model.batch import Float64s, Int64s, Uint32s
from jobmeter.model.time import NS_PER_MS
from jobmeter.wire.otlp.values import decode_text, parse_attributes
from jobmeter.wire.protobuf import iterate_fields

MOST_PARTS = 1_000_000
"""Most messages in one request: data points, metrics, buckets, and so on."""
ATTRIBUTES = 0x3A
"""The tag of a data point's attributes in a key."""
_RESOURCE_ATTRIBUTES, _SCOPE_NAME, _SCOPE_VERSION, _SCOPE_ATTRIBUTES = 0x0A, 0x0A, 0x12, 0x1A
_LONGEST_NAME = 1_024
"""Most bytes of a name or a unit; a longer name is invalid."""
MOST_OWN = 32 * 1_024
"""Most bytes of a data point's attributes. Larger ones are never stored, and must not fill the cache."""

_WIDTH = 8
"""Bytes of each number in a key."""
_PACK = struct.Struct("<Q").pack
_MOST_NUMBERS, _NUMBERS_BYTES = 1_000_000, 64 * 2**20

Columns = tuple[Uint32s, Int64s, Float64s]
"""Index, time in ms (-1 if missing), value."""


class WrittenKind(Enum):
    """The kind of a series."""

    GAUGE = "gauge"
    COUNTER = "counter"


class Described(msgspec.Struct, frozen=True):
    """The description of a series.

    ``attributes`` are the attributes of the data point, with ``le`` or ``quantile`` if it has one. ``name`` ends with
    ``_count``, ``_sum`` or ``_bucket`` if the metric is a histogram or a summary. ``scope``: the name, the version and
    the attributes of the instrumentation scope.
    """

    name: str
    unit: str
    kind: WrittenKind
    resource: Mapping[str, str]
    scope: "Scope"
    attributes: Mapping[str, str]


Scope = tuple[str, str, Mapping[str, str]]


class Numbers:
    """A number for each value, as ``_WIDTH`` bytes, the same in every request. Safe for several threads.

    A table with too many values is emptied. A number is never used twice.
    """

    def __init__(self, bound: int = _NUMBERS_BYTES) -> None:
        """``bound``: bytes of all values together, about."""
        self._bound = bound
        self._numbers: dict[Hashable, bytes] = {}
        self._next = itertools.count()
        self.size = 0
        """Bytes of the values, about."""

    def get_number(self, value: Hashable, size: int) -> bytes:
        """Return the number of a value; ``size`` is about its bytes."""
        numbers = self._numbers
        found = numbers.get(value)
        if found is None:
            if len(numbers) > _MOST_NUMBERS or self.size > self._bound:
                self._numbers = numbers = {}
                self.size = 0
            # If two threads add the same value, the first number wins.
            found = numbers.setdefault(value, _PACK(next(self._next)))
            self.size += size
        return found


class WrittenOwner:
    """The resource and scope of a metric: a number for both, the same in every request, and their attributes."""

    def __init__(self, number: bytes, resource: bytes, scope: bytes) -> None:
        self.number = number
        self._sent = resource, scope
        self._read: tuple[Mapping[str, str], Scope] | InvalidRequestError | None = None

    def parse_words(self) -> tuple[Mapping[str, str], Scope]:
        """Return the attributes of the resource, and the scope; parsed once.

        Raises InvalidRequestError (field ``labels``).
        """
        if self._read is None:
            resource, scope = self._sent
            try:
                self._read = parse_attributes(resource, _RESOURCE_ATTRIBUTES), _scope(scope)
            except InvalidRequestError as error:
                self._read = error
        if isinstance(self._read, InvalidRequestError):
            raise InvalidRequestError(self._read.message, "labels")
        return self._read


class Named(NamedTuple):
    """The owner, name and unit of a metric."""

    owner: WrittenOwner
    name: bytes
    unit: bytes


class WrittenHeader(NamedTuple):
    """The common part of the series of one metric. ``prefix`` encodes it, the same in every request."""

    prefix: bytes
    named: Named
    kind: WrittenKind
    suffix: str
    extra: tuple[str, str]


@dataclass(frozen=True, slots=True, eq=False)
class WrittenTelemetry:
    """The samples of a request.

    ``keys``: bytes that encode the name and the attributes of each series, the same in every request. A series may be
    included although none of its samples is finite. ``heads`` has one sample for each data point that can be stored,
    ``rest`` the further samples of histograms and summaries. Their indexes are positions in ``keys``; their values are
    finite. ``refused`` counts the rejected data points by reason. ``stale`` counts data points that are marked as
    without a value. ``parts`` counts samples of stored histograms and summaries that are not finite.
    """

    keys: list[bytes]
    heads: Columns
    rest: Columns
    refused: Counter[str]
    stale: int
    parts: int
    spans: Sequence[tuple[int, WrittenHeader]] = field(repr=False)

    def describe(self, at: int) -> Described:
        """Return the description of the series at a position.

        Raises InvalidRequestError (field ``metric`` or ``labels``).
        """
        header = self.spans[bisect.bisect_right(self.spans, at, key=lambda span: span[0]) - 1][1]
        owner, name, unit = header.named
        if len(name) > _LONGEST_NAME or len(unit) > _LONGEST_NAME:
            raise InvalidRequestError(f"a name may have at most {_LONGEST_NAME} bytes", "metric")
        own = parse_attributes(self.keys[at][_WIDTH:], ATTRIBUTES)
        if header.extra[0]:
            own[header.extra[0]] = header.extra[1]
        full_name = decode_text(name, "metric") + header.suffix if name else ""
        return Described(full_name, decode_text(unit, "metric"), header.kind, *owner.parse_words(), own)


def _scope(raw: bytes) -> Scope:
    name = version = b""
    for tag, _, at, end in iterate_fields(raw, 0, len(raw)):
        if tag == _SCOPE_NAME:
            name = raw[at:end]
        elif tag == _SCOPE_VERSION:
            version = raw[at:end]
    return decode_text(name, "labels"), decode_text(version, "labels"), parse_attributes(raw, _SCOPE_ATTRIBUTES)


class Builder:
    """Collects the data points of one request."""

    def __init__(self, data: bytes = b"", numbers: Numbers | None = None) -> None:
        """``places`` are positions in ``data``; ``numbers`` are shared with earlier requests."""
        self._numbers = Numbers() if numbers is None else numbers
        self.keys: list[bytes] = []
        self.spans: list[tuple[int, WrittenHeader]] = []
        self.indexes: list[int] = []
        self.places: list[int] = []
        """Starts of the times of data points in the usual form; the tag and the value follow each time."""
        self.refused: Counter[str] = Counter()
        self.stale = 0
        self.parts = 0
        self._data = data
        self._left = MOST_PARTS
        self._heads = _Rows()
        self._rest = _Rows()

    def count(self, parts: int = 1) -> None:
        """Count parts against the limit of a request. Raises LimitExceededError."""
        self._left -= parts
        if self._left < 0:
            raise LimitExceededError(f"a request may have at most {MOST_PARTS} data points and other parts", "body")

    def find_resource(self, sent: bytes) -> bytes:
        """Return a number for a resource, the same in every request."""
        return self._numbers.get_number(sent, len(sent))

    def find_owner(self, number: bytes, resource: bytes, scope: bytes) -> WrittenOwner:
        """Return the owner with that resource and scope; ``number`` is the number of the resource."""
        return WrittenOwner(self._numbers.get_number((number, scope), len(scope)), resource, scope)

    def find_header(
        self, named: Named, kind: WrittenKind, suffix: str = "", extra: tuple[str, str] = ("", "")
    ) -> WrittenHeader:
        """Return the header of the series of a metric."""
        owner, name, unit = named
        if len(name) + len(unit) > _LONGEST_NAME:
            name, unit = blake2b(name).digest(), blake2b(unit).digest()
        parts = owner.number, name, unit, kind is WrittenKind.COUNTER, suffix, extra
        return WrittenHeader(self._numbers.get_number(parts, len(name) + len(unit)), named, kind, suffix, extra)

    def refuse(self, reason: str, points: int = 1) -> None:
        """Count rejected data points."""
        self.refused[reason] += points

    def add_head(self, header: WrittenHeader, own: bytes, time_ns: int, value: float) -> None:
        """Add the first sample of a data point. Its attributes are fields ``ATTRIBUTES``."""
        if not np.isfinite(value):
            self.refused["not-a-number"] += 1
            return
        self._add(self._heads, header, own, time_ns, value)

    def add_more(self, header: WrittenHeader, own: bytes, time_ns: int, value: float) -> None:
        """Add a further sample of the previous data point."""
        if not np.isfinite(value):
            self.parts += 1
            return
        self._add(self._rest, header, own, time_ns, value)

    def accept(self, own: bytes) -> bool:
        """Return True if a data point with these attributes can be stored; otherwise count it as rejected."""
        if len(own) > MOST_OWN:
            self.refuse("labels")
            return False
        return True

    def _add(self, rows: "_Rows", header: WrittenHeader, own: bytes, time_ns: int, value: float) -> None:
        if not self.spans or self.spans[-1][1] is not header:
            self.spans.append((len(self.keys), header))
        rows.index.append(len(self.keys))
        rows.time.append(time_ns)
        rows.value.append(value)
        self.keys.append(header.prefix + own)

    def finish(self) -> WrittenTelemetry:
        """Return the columns of everything collected."""
        index, at = np.array(self.indexes, np.uint32), np.array(self.places, np.int64)
        heads, odd = read_usual_columns(self._data, index, at)
        self.refused["not-a-number"] += odd
        if self._heads.index:
            more = self._heads.to_columns()
            index, time, value = np.r_[heads[0], more[0]], np.r_[heads[1], more[1]], np.r_[heads[2], more[2]]
            order = np.argsort(index, kind="stable")
            heads = index[order], time[order], value[order]
        return WrittenTelemetry(
            self.keys, heads, self._rest.to_columns(), +self.refused, self.stale, self.parts, self.spans
        )


def read_usual_columns(data: bytes, index: Uint32s, at: Int64s) -> tuple[Columns, int]:
    """Return the data points whose times begin at these positions, and the number of those that are not finite.

    A tag and a value follow each time. ``index`` is the series of each data point.
    """
    octets = np.frombuffer(data, np.uint8)
    time = _read_fixed(octets, at)
    bits = _read_fixed(octets, at + 9)
    whole = octets[at + 8] == AS_INT
    value = np.where(whole, bits.view(np.int64).astype(np.float64), bits.view(np.float64))
    finite = np.isfinite(value)
    odd = len(finite) - int(np.count_nonzero(finite))
    if odd:
        index, time, value = index[finite], time[finite], value[finite]
    return (index, _milliseconds(time), value), odd


AS_DOUBLE, AS_INT = 0x21, 0x31
"""Tags of a data point's value."""
_EIGHT = np.arange(8)


def _read_fixed(octets: NDArray[np.uint8], at: Int64s) -> NDArray[np.uint64]:
    """Return the eight bytes at each position as a number."""
    found: NDArray[np.uint64] = octets[at[:, None] + _EIGHT].view("<u8").ravel()
    return found


def _milliseconds(time_ns: NDArray[np.uint64]) -> Int64s:
    """Convert nanoseconds to milliseconds; 0, which means no time, becomes -1."""
    return np.where(time_ns == 0, -1, (time_ns // np.uint64(NS_PER_MS)).astype(np.int64))


class _Rows:
    """Samples collected one after the other."""

    def __init__(self) -> None:
        self.index: list[int] = []
        self.time: list[int] = []
        self.value: list[float] = []

    def to_columns(self) -> Columns:
        """Return the samples as arrays."""
        time = np.array(self.time, np.uint64)
        return np.array(self.index, np.uint32), _milliseconds(time), np.array(self.value, np.float64)
