"""Read every stored sample of a job, block by block, for raw exports.

Samples are neither bucketed, combined nor converted; a counter has the values that were read. The series are those
behind a query for the job's metrics, including the counter behind a rate and both parts of a ratio. For a device
measured without a job, only samples from the time when the job had it are included.
"""

from collections.abc import Generator, Sequence
from contextlib import closing

import msgspec
from msgspec.structs import replace

from jobmeter.model.batch import SampleColumns
from jobmeter.model.question import Question
from jobmeter.model.time import TimeRange
from jobmeter.query.meter import Meter
from jobmeter.query.request import JobRef, find_metrics, list_sources
from jobmeter.query.selected_series import SelectedSeries, SeriesPart
from jobmeter.query.source import estimate_rows
from jobmeter.store.base import Store

_TOGETHER = 256
"""Series read together. Samples in memory are one block."""


class Readings(msgspec.Struct, frozen=True, eq=False):
    """Samples of ``entries``, which are series with their owners.

    ``blocks`` yields the samples: ``index`` is a position in ``entries``. The samples of an entry are in order of time
    and may continue in the next block. It can be iterated once, raises LimitExceededError or QueryTimeoutError, and
    stops the store's work when closed early. ``names`` are the metrics that may occur.
    """

    names: frozenset[str]
    entries: Sequence[SeriesPart]
    blocks: Generator[SampleColumns]


class ReadingsQuestion(msgspec.Struct, Question[Readings], frozen=True, kw_only=True):
    """Question for the samples of some metrics, replicas and devices of a job in the range; empty means all.

    It may read ``Limits.export_rows`` and take ``Limits.export_seconds``, including the consumer's time.
    """

    by_resource = of_job = True

    ref: JobRef
    metrics: tuple[str, ...]
    range: TimeRange
    replicas: frozenset[str] = frozenset()
    devices: frozenset[str] = frozenset()

    @property
    def names(self) -> frozenset[str]:
        """Every metric that may occur. Raises InvalidRequestError (field ``metric``) for an unknown metric."""
        return list_sources(find_metrics(self.metrics))


def read_samples(store: Store, question: ReadingsQuestion, shape: SelectedSeries, meter: Meter) -> Readings:
    """Return the samples of a shape's entries; reading begins with the first requested block."""
    limits = meter.limits
    own = replace(limits, query_rows=limits.export_rows, query_seconds=limits.export_seconds)
    return Readings(question.names, shape.entries, _blocks(store, shape, question.range, Meter(meter.clock, own)))


def _blocks(store: Store, shape: SelectedSeries, span: TimeRange, meter: Meter) -> Generator[SampleColumns]:
    for group in shape.list_reads(span):
        for first in range(0, len(group.keys), _TOGETHER):
            some = slice(first, first + _TOGETHER)
            keys, positions = group.keys.select(some), group.positions[some]
            found = store.read(keys, group.span, meter.make_budget(estimate_rows(keys, group.span)))
            with closing(found):  # stop the store's work now rather than at garbage collection
                for block in found:
                    meter.count(len(block), None)
                    yield SampleColumns(positions.take(block.index), block.time, block.value)
