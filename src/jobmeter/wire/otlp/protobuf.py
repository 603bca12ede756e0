"""Reads ``ExportMetricsServiceRequest`` in protocol buffers to columns.

https://github.com/open-telemetry/opentelemetry-proto/blob/main/opentelemetry/proto/metrics/v1/metrics.proto
"""

import struct
from collections.abc import Callable, Iterator, Sequence

from jobmeter.kernel.otlp import ScannedRow, ScannedTelemetry, scan
from jobmeter.wire.otlp import metric
from jobmeter.wire.otlp.metric import MetricPoint
from jobmeter.wire.otlp.shapes import LEAST, RequestShape, Shapes
from jobmeter.wire.otlp.values import encode_part
from jobmeter.wire.otlp.written import (
    AS_DOUBLE,
    AS_INT,
    ATTRIBUTES,
    MOST_OWN,
    MOST_PARTS,
    Builder,
    Named,
    Numbers,
    WrittenHeader,
    WrittenKind,
    WrittenOwner,
    WrittenTelemetry,
)
from jobmeter.wire.protobuf import Field, iterate_fields, make_damage_error, read_varint

_FIXED = struct.Struct("<Q")
_DOUBLE = struct.Struct("<d")
_WHOLE = struct.Struct("<q")
_FIRST, _SECOND = 0x0A, 0x12
_NAME, _UNIT = 0x0A, 0x1A
_GAUGE, _SUM, _HISTOGRAM, _EXPONENTIAL, _SUMMARY = 0x2A, 0x3A, 0x4A, 0x52, 0x5A
_DATA_POINT, _TEMPORALITY, _MONOTONIC = 0x0A, 0x10, 0x18
_TIME, _FLAGS = 0x19, 0x40
_COUNT, _TOTAL = 0x21, 0x29
_HISTOGRAM_ATTRIBUTES, _HISTOGRAM_FLAGS = 0x4A, 0x50
_COUNTS, _COUNT_ALONE, _BOUNDS, _BOUND_ALONE = 0x32, 0x31, 0x3A, 0x39
_QUANTILES, _QUANTILE, _QUANTILE_VALUE = 0x32, 0x09, 0x11
_LONG = 128
_START = 0x11
_BEFORE = 17
"""Bytes from the start of a time to the attributes that follow time and value."""

Span = tuple[int, int]


def decode(data: bytes, shapes: Shapes | None = None) -> WrittenTelemetry:
    """Return the columns of a request; ``shapes`` caches the shapes of earlier requests.

    Raises InvalidRequestError (field ``body``) for any other message, LimitExceededError for too many parts.
    """
    shapes = Shapes() if shapes is None else shapes
    walk = _Walk(data, shapes.numbers)
    scanned = scan(data, MOST_PARTS, MOST_OWN)
    if scanned is None:
        walk.read_request()
        return walk.into.finish()
    lasting = len(scanned.own) >= LEAST and scanned.plain
    shape = shapes.get(scanned.shape) if lasting else None
    if shape is None:
        walk.read_scanned(scanned)
        if not lasting:
            return walk.into.finish()
        shape = RequestShape.from_request(walk.into)
        shapes.put(scanned.shape, shape)
    return shape.combine(data)


class _Walk:
    """Walks through a request, message by message."""

    def __init__(self, data: bytes, numbers: Numbers) -> None:
        self.into = Builder(data, numbers)
        self._data = data

    def read_request(self) -> None:
        """Read the whole request."""
        for tag, _, at, end in self._read_fields(0, len(self._data)):
            if tag == _FIRST:
                self._read_resource(at, end)

    def read_scanned(self, found: ScannedTelemetry) -> None:
        """Read the whole request from the result of the compiled scan."""
        data = self._data
        resources: dict[Span, tuple[bytes, bytes]] = {}
        owners: dict[Span, WrittenOwner] = {}
        points = found.own.tolist(), found.end.tolist()
        for row in found.rows:
            scope = row.scope, row.scope_end
            owner = owners.get(scope)
            if owner is None:
                span = row.resource, row.resource_end
                if span not in resources:
                    sent = data[row.resource : row.resource_end]
                    resources[span] = self.into.find_resource(sent), sent
                owner = owners[scope] = self.into.find_owner(*resources[span], data[row.scope : row.scope_end])
            named = Named(owner, data[row.name : row.name_end], data[row.unit : row.unit_end])
            self.into.count(1 + row.points)
            if row.plain:
                self._add_plain(row, named, *points)
            else:
                _READERS[row.kind](self, named, [(row.body, row.body_end)])

    def _add_plain(self, row: ScannedRow, named: Named, own: list[int], ends: list[int]) -> None:
        """Add a gauge or a sum whose data points all have the usual form."""
        into, data = self.into, self._data
        summed = row.kind == _SUM
        reason = metric.find_refusal(row.temporality) if summed else ""
        if reason:
            into.refuse(reason, row.points)
            return
        header = into.find_header(named, WrittenKind.COUNTER if summed and row.monotonic else WrittenKind.GAUGE)
        prefix, keys, first = header.prefix, into.keys, row.first
        begins, stops = own[first : first + row.points], ends[first : first + row.points]
        into.spans.append((len(keys), header))
        into.indexes.extend(range(len(keys), len(keys) + row.points))
        into.places.extend([at - _BEFORE for at in begins])
        keys.extend([prefix + data[begin:stop] for begin, stop in zip(begins, stops, strict=True)])

    def _read_fields(self, at: int, end: int) -> Iterator[Field]:
        for one in iterate_fields(self._data, at, end):
            self.into.count()
            yield one

    def _read_resource(self, at: int, end: int) -> None:
        resource, scopes = self._split_message(at, end)
        number = self.into.find_resource(resource)
        for place in scopes:
            scope, metrics = self._split_message(*place)
            if metrics:
                owner = self.into.find_owner(number, resource, scope)
                for one in metrics:
                    self._read_metric(owner, *one)

    def _split_message(self, at: int, end: int) -> tuple[bytes, list[Span]]:
        """Return the first field, joined even if it comes in pieces, and the spans of the second ones."""
        head, parts = [], []
        for tag, _, content, stop in self._read_fields(at, end):
            if tag == _FIRST:
                head.append(self._data[content:stop])
            elif tag == _SECOND:
                parts.append((content, stop))
        return b"".join(head), parts

    def _read_metric(self, owner: WrittenOwner, at: int, end: int) -> None:
        name = unit = b""
        kind = 0
        spans: list[Span] = []
        for tag, _, content, stop in self._read_fields(at, end):
            if tag == _NAME:
                name = self._data[content:stop]
            elif tag == _UNIT:
                unit = self._data[content:stop]
            elif tag in _READERS:
                if tag != kind:
                    kind, spans = tag, []
                spans.append((content, stop))
        if kind:
            _READERS[kind](self, Named(owner, name, unit), spans)

    def _find_points(self, spans: Sequence[Span]) -> tuple[list[Span], int, bool]:
        """Return the spans of the data points, the aggregation temporality, and True for a monotonic sum."""
        data, found, temporality, monotonic = self._data, [], 0, False
        for begin, end in spans:
            for tag, _, content, stop in iterate_fields(data, begin, end):
                if tag == _DATA_POINT:
                    found.append((content, stop))
                elif tag == _TEMPORALITY:
                    temporality, _ = read_varint(data, content, stop)
                elif tag == _MONOTONIC:
                    monotonic = read_varint(data, content, stop)[0] != 0
        self.into.count(len(found))
        return found, temporality, monotonic

    def add_gauge(self, named: Named, spans: Sequence[Span]) -> None:
        """Add a gauge."""
        self._read_numbers(self.into.find_header(named, WrittenKind.GAUGE), self._find_points(spans)[0])

    def sum(self, named: Named, spans: Sequence[Span]) -> None:
        """Add a sum: a counter if it is monotonic."""
        points, temporality, monotonic = self._find_points(spans)
        reason = metric.find_refusal(temporality)
        if reason:
            self.into.refuse(reason, len(points))
        else:
            self._read_numbers(
                self.into.find_header(named, WrittenKind.COUNTER if monotonic else WrittenKind.GAUGE), points
            )

    def add_histogram(self, named: Named, spans: Sequence[Span]) -> None:
        """Add a histogram with explicit bounds."""
        points, temporality, _ = self._find_points(spans)
        reason = metric.find_refusal(temporality)
        if reason:
            self.into.refuse(reason, len(points))
            return
        for at, end in points:
            point, values = self._read_point(at, end, _HISTOGRAM_ATTRIBUTES, _HISTOGRAM_FLAGS)
            counts = [value for (value,) in _FIXED.iter_unpack(values.get(_COUNTS, b""))]
            bounds = [value for (value,) in _DOUBLE.iter_unpack(values.get(_BOUNDS, b""))]
            metric.add_histogram(self.into, named, point, counts, bounds)

    def reject_exponential(self, named: Named, spans: Sequence[Span]) -> None:  # noqa: ARG002 - as the others
        """Reject an exponential histogram."""
        self.into.refuse("exponential-histogram", len(self._find_points(spans)[0]))

    def add_summary(self, named: Named, spans: Sequence[Span]) -> None:
        """Add a summary."""
        for at, end in self._find_points(spans)[0]:
            point, _ = self._read_point(at, end, ATTRIBUTES, _FLAGS)
            quantiles = [
                self._read_quantile(begin, stop)
                for tag, _, begin, stop in iterate_fields(self._data, at, end)
                if tag == _QUANTILES
            ]
            metric.add_summary(self.into, named, point, quantiles)

    def _read_quantile(self, at: int, end: int) -> tuple[float, float]:
        found = {_QUANTILE: 0.0, _QUANTILE_VALUE: 0.0}
        for tag, _, content, _ in iterate_fields(self._data, at, end):
            if tag in found:
                (found[tag],) = _DOUBLE.unpack_from(self._data, content)
        return found[_QUANTILE], found[_QUANTILE_VALUE]

    def _read_point(self, at: int, end: int, attributes: int, flagged: int) -> tuple[MetricPoint, dict[int, bytes]]:
        """Return the common fields of histograms and summaries, and the bytes of packed numbers by their tag."""
        data, own = self._data, []
        flags = time_ns = count = 0
        total: float | None = None
        packed: dict[int, list[bytes]] = {}
        for tag, _, content, stop in self._read_fields(at, end):
            if tag == attributes:
                own.append(encode_part(ATTRIBUTES, data[content:stop]))
            elif tag == _TIME:
                (time_ns,) = _FIXED.unpack_from(data, content)
            elif tag == _COUNT:
                (count,) = _FIXED.unpack_from(data, content)
            elif tag == _TOTAL:
                (total,) = _DOUBLE.unpack_from(data, content)
            elif tag == flagged:
                flags, _ = read_varint(data, content, stop)
            elif tag in _PACKED:
                packed.setdefault(_PACKED[tag], []).append(_eights(data[content:stop], tag, attributes))
        point = MetricPoint(b"".join(own), time_ns, flags, count, total)
        return point, {tag: b"".join(parts) for tag, parts in packed.items()}

    def _read_numbers(self, header: WrittenHeader, points: Sequence[Span]) -> None:
        """Add data points of one number.

        Nearly all have the usual form: times, a value, then attributes and no more.
        """
        data, into, prefix = self._data, self.into, header.prefix
        keys, indexes, places = into.keys, into.indexes, into.places
        into.spans.append((len(keys), header))
        for begin, end in points:
            own = _find_usual_attributes(data, begin, end)
            if own < 0:
                self._read_number(header, begin, end)
                continue
            places.append(own - _BEFORE)
            indexes.append(len(keys))
            keys.append(prefix + data[own:end])

    def _read_number(self, header: WrittenHeader, at: int, end: int) -> None:
        data, own = self._data, []
        flags = time_ns = 0
        value: float | None = None
        for tag, _, content, stop in self._read_fields(at, end):
            if tag == ATTRIBUTES:
                own.append(encode_part(ATTRIBUTES, data[content:stop]))
            elif tag == _TIME:
                (time_ns,) = _FIXED.unpack_from(data, content)
            elif tag == AS_DOUBLE:
                (value,) = _DOUBLE.unpack_from(data, content)
            elif tag == AS_INT:
                value = float(_WHOLE.unpack_from(data, content)[0])
            elif tag == _FLAGS:
                flags, _ = read_varint(data, content, stop)
        metric.add_number(self.into, header, b"".join(own), time_ns, flags, value)


def _find_usual_attributes(data: bytes, begin: int, end: int) -> int:
    """Return the start of the attributes of a data point in the usual form; -1 for another form."""
    at = begin + 9 if end - begin >= 27 and data[begin] == _START else begin
    if end - at < 18 or data[at] != _TIME or data[at + 9] not in {AS_DOUBLE, AS_INT}:
        return -1
    own = at = at + 18
    if end - own > MOST_OWN:
        return -1
    while at < end:
        if data[at] != ATTRIBUTES or at + 1 >= end or data[at + 1] >= _LONG:
            return -1
        at += 2 + data[at + 1]
    return own if at == end else -1


def _eights(content: bytes, tag: int, attributes: int) -> bytes:
    """Return packed numbers of eight bytes. Raises InvalidRequestError for an incomplete number."""
    if len(content) % 8 and attributes == _HISTOGRAM_ATTRIBUTES:
        raise make_damage_error(f"field {tag >> 3} is cut off")
    return content


_PACKED = {_COUNTS: _COUNTS, _COUNT_ALONE: _COUNTS, _BOUNDS: _BOUNDS, _BOUND_ALONE: _BOUNDS}
_READERS: dict[int, Callable[[_Walk, Named, Sequence[Span]], None]] = {
    _GAUGE: _Walk.add_gauge,
    _SUM: _Walk.sum,
    _HISTOGRAM: _Walk.add_histogram,
    _EXPONENTIAL: _Walk.reject_exponential,
    _SUMMARY: _Walk.add_summary,
}
