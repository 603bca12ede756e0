"""Every stored reading of a job, block by block, for raw exports.

Nothing is bucketed, joined or converted; a counter is what was read. The series are those that a question about the
job's metrics is answered from, the counter behind a rate and the two sides of a ratio among them, and of a device that
was measured for nobody only what was measured while the job had it.
"""

from collections.abc import Generator, Iterator, Sequence

import msgspec
from msgspec.structs import replace

from jobmeter.model.batch import SampleColumns
from jobmeter.model.question import Question
from jobmeter.model.time import TimeRange
from jobmeter.query.meter import Meter
from jobmeter.query.request import JobRef, metrics_of, sources
from jobmeter.query.shape import Entry, Shape
from jobmeter.query.source import expected
from jobmeter.store.base import Store

_TOGETHER = 256
"""Series read at a time. Samples in memory are one block."""


class Readings(msgspec.Struct, frozen=True, eq=False):
    """``entries`` are the series and the owners of their samples.

    ``blocks`` gives their samples: ``index`` is a position in ``entries``; the samples of an entry follow one another
    in order of time, and go on in the next block. It can be gone through once, raises LimitExceededError or
    QueryTimeoutError, and stops the store's work when it is closed before its end. ``names`` are the metrics that may
    occur.
    """

    names: frozenset[str]
    entries: Sequence[Entry]
    blocks: Generator[SampleColumns]


class ReadingsQuestion(msgspec.Struct, Question[Readings], frozen=True, kw_only=True):
    """The readings of some metrics of a job inside the range, of some replicas and devices; empty means all.

    It may read ``Limits.export_rows`` and take ``Limits.export_seconds``, the consumer of the blocks included.
    """

    ref: JobRef
    metrics: tuple[str, ...]
    range: TimeRange
    replicas: frozenset[str] = frozenset()
    devices: frozenset[str] = frozenset()

    @property
    def names(self) -> frozenset[str]:
        """Every metric that may occur. Raises InvalidRequestError (field ``metric``) for one that is unknown."""
        return sources(metrics_of(self.metrics))


def readings(store: Store, question: ReadingsQuestion, shape: Shape, meter: Meter) -> Readings:
    """The readings of a shape's entries; nothing is read before the first block is requested."""
    limits = meter.limits
    own = replace(limits, query_rows=limits.export_rows, query_seconds=limits.export_seconds)
    return Readings(question.names, shape.entries, _blocks(store, shape, question.range, Meter(meter.clock, own)))


def _blocks(store: Store, shape: Shape, span: TimeRange, meter: Meter) -> Generator[SampleColumns]:
    for group in shape.reads(span):
        for first in range(0, len(group.keys), _TOGETHER):
            some = slice(first, first + _TOGETHER)
            keys, positions = group.keys.where(some), group.positions[some]
            found = store.read(keys, group.span, meter.budget(expected(keys, group.span)))
            try:
                for block in found:
                    meter.count(len(block), None)
                    yield SampleColumns(positions.take(block.index), block.time, block.value)
            finally:
                _close(found)


def _close(found: Iterator[SampleColumns]) -> None:
    """Stop the store now rather than when the generator is garbage collected."""
    if isinstance(found, Generator):
        found.close()
