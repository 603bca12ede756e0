"""Contract of sinks, which deliver a batch or raise an error, and the form of a shipped line."""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from jobmeter.errors import ConfigurationError
from jobmeter.ship.line import ShippedLine


class SinkError(Exception):
    """Failed delivery of a batch; ``message`` is one sentence without a secret. The batch is sent again later."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class SinkRefusedError(SinkError):
    """Permanent refusal of a batch: it is too large, or one of its lines is invalid there."""


class Origin(msgspec.Struct, frozen=True):
    """Source of a sink's lines: the id of the shipper, and its project and logstore."""

    shipper: str
    project: str
    logstore: str


class Sink(Protocol):
    """Destination of shipped lines. Used by one thread at a time."""

    most_lines: int
    """Most lines of a batch."""
    most_bytes: int
    """Most bytes of a batch as stored in the outbox; a single line may have more."""
    linger_seconds: float
    """Longest time in seconds that lines wait for more before an incomplete batch is sent."""

    def send(self, lines: Sequence[ShippedLine]) -> int:
        """Deliver lines in order; on return the sink has stored them. Returns the number of permanently refused lines.

        Raises SinkError; some lines may be stored then.
        """
        ...

    def close(self) -> None:
        """Close connections."""
        ...


class SinkSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Sink in the settings file: one ``[[sink]]``.

    It serves ``project`` and ``logstore``; the logstore ``*`` stands for every logstore of the project without its own
    sink. The kind defines which of the other fields apply.
    """

    project: str
    logstore: str
    kind: str
    url: str = ""
    directory: str = ""
    rotate_bytes: int = 64 * 2**20
    bucket: str = ""
    prefix: str = ""
    region: str = "us-east-1"
    linger_seconds: float | None = None
    access_key_id: str = ""
    access_key_secret: str = ""
    access_key_secret_env: str = ""
    token: str = ""
    token_env: str = ""
    tenant: str = ""
    headers: dict[str, str] = {}
    labels: dict[str, str] = {}

    def __repr__(self) -> str:
        """Leaves out secrets."""
        return f"SinkSettings({self.project!r}, {self.logstore!r}, {self.kind!r})"


def get_access_key(settings: SinkSettings) -> tuple[str, str]:
    """Return the access key of a sink: id and secret. Raises ConfigurationError if it is missing."""
    if not settings.access_key_id or not settings.access_key_secret:
        raise ConfigurationError(
            f"a sink of kind {settings.kind} needs access_key_id and access_key_secret (or ..._env)"
        )
    return settings.access_key_id, settings.access_key_secret
