"""The cache of what senders send again, by its bytes: one service with one budget, given to the decoders."""

from jobmeter.ingest.exporters.table import Places
from jobmeter.ingest.otel.place import place as place_otel
from jobmeter.wire.native.series_lists import SeriesListCache
from jobmeter.wire.otlp.shapes import Shapes
from jobmeter.wire.remote_write.symbols import Symbols

SENDER_CACHE_BYTES = 340 * 2**20
"""The budget where none is given: that of the default settings."""


class SenderCache:
    """Lists of series of frames, labels of remote write and OTLP, and the shapes of their requests.

    Each part has its share of the budget and forgets when that is full; a sender whose requests were forgotten is read
    anew, which costs time and changes nothing. Safe for several threads.
    """

    def __init__(self, bound: int = SENDER_CACHE_BYTES) -> None:
        """``bound``: bytes of all parts together, about."""
        quarter = bound // 4
        self.series_lists = SeriesListCache(quarter)
        self.prometheus_labels = Places(bound=quarter)
        self.otlp_labels = Places(place_otel, bound=quarter)
        self.otlp_shapes = Shapes(bound=quarter * 3 // 4)
        self.symbols = Symbols(bound=quarter // 4)

    @property
    def sizes(self) -> dict[str, int]:
        """About how many bytes each part takes."""
        return {name: part.size for name, part in vars(self).items()}
