"""The cache of repeated parts of requests, by their bytes. The decoders share it and its memory budget."""

from jobmeter.ingest.exporters.label_resolver import LabelResolver
from jobmeter.ingest.exporters.resolve import resolve_special
from jobmeter.ingest.otel.resolve import resolve as resolve_otel
from jobmeter.model.series_table import SeriesTable
from jobmeter.wire.native.series_lists import SeriesListCache
from jobmeter.wire.otlp.shapes import Shapes
from jobmeter.wire.remote_write.symbols import Symbols

SENDER_CACHE_BYTES = 340 * 2**20
"""Default budget in bytes, equal to the budget of the default settings."""


class SenderCache:
    """Caches series lists of frames, labels of remote write and OTLP, and the shapes of their requests.

    Each part has its share of the budget and drops entries when it is full. A dropped entry costs time and nothing
    else: it is parsed again. Safe for several threads.
    """

    def __init__(self, table: SeriesTable | None = None, bound: int = SENDER_CACHE_BYTES) -> None:
        """``bound``: bytes of all parts together, about."""
        self.series_table = table = SeriesTable() if table is None else table
        quarter = bound // 4
        self.series_lists = SeriesListCache(table, quarter)
        self.prometheus_labels = LabelResolver(table, bound=quarter * 3 // 4)
        self.special_labels = LabelResolver(table, resolve_special, bound=quarter // 4)
        self.otlp_labels = LabelResolver(table, resolve_otel, bound=quarter)
        self.otlp_shapes = Shapes(bound=quarter * 3 // 4)
        self.symbols = Symbols(bound=quarter // 4)
