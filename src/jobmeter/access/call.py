"""A request as it came over the wire: nothing decoded, nothing normalised. Signatures are made over exactly this."""

from dataclasses import dataclass
from functools import cached_property
from urllib.parse import parse_qsl


@dataclass(frozen=True)
class Call:
    """One HTTP request.

    ``raw_path`` and ``query`` are as on the wire (``%2F``, ``//`` and case kept; no scheme, no host, no ``?``).
    ``headers`` are (lower-case name, value) pairs in order, values decoded as Latin-1. ``body`` is what came, before
    any content decoding.
    """

    method: str
    raw_path: str
    query: str
    headers: tuple[tuple[str, str], ...]
    body: bytes = b""
    scheme: str = "http"
    client: str = ""

    def header(self, name: str, default: str = "") -> str:
        """The first header of that lower-case name."""
        return self._headers.get(name, default)

    def parameter(self, name: str) -> str | None:
        """The first query parameter of that exact name, decoded; None when it is absent (an empty one is ``""``)."""
        return self._parameters.get(name)

    @cached_property
    def parameters(self) -> tuple[tuple[str, str], ...]:
        """Every query parameter, decoded form-style (``+`` is a space), in order."""
        return tuple(parse_qsl(self.query, keep_blank_values=True, max_num_fields=1000))

    @cached_property
    def _parameters(self) -> dict[str, str]:
        return dict(reversed(self.parameters))

    @cached_property
    def _headers(self) -> dict[str, str]:
        return dict(reversed(self.headers))
