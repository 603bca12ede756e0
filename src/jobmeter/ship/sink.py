"""The contract of sinks: they take a batch, or raise why not."""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from jobmeter.errors import ConfigurationError
from jobmeter.ship.line import ShippedLine


class SinkError(Exception):
    """A sink did not take a batch; ``message`` is one sentence without a secret. It is sent again later."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class RefusedError(SinkError):
    """A sink will never take this batch as it is: it is too large, or one of its lines is invalid there."""


class Origin(msgspec.Struct, frozen=True):
    """The source of a sink's lines: the id of the shipper, and the project and the logstore that it ships to."""

    shipper: str
    project: str
    logstore: str


class Sink(Protocol):
    """A destination of shipped lines. Used by one thread at a time."""

    most_lines: int
    """Most lines of one batch."""
    most_bytes: int
    """Most bytes of a batch as the outbox has them; a single line may have more."""
    linger_seconds: float
    """How long lines may wait for more to come before a batch that is not full is sent."""

    def send(self, lines: Sequence[ShippedLine]) -> int:
        """Deliver lines in their order; on return the sink has stored them. Gives how many it refused permanently.

        Raises SinkError; some lines may be stored then.
        """
        ...

    def close(self) -> None:
        """Release its connections."""
        ...


class SinkSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One ``[[sink]]`` of the file.

    It serves ``project`` and ``logstore``; the logstore ``*`` means every one of the project without its own sink. The
    kind defines which of the other fields apply.
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
        """Without secrets."""
        return f"SinkSettings({self.project!r}, {self.logstore!r}, {self.kind!r})"


def access_key(settings: SinkSettings) -> tuple[str, str]:
    """The key that requests to the sink are signed with: its id and its secret. Raises ConfigurationError for none."""
    if not settings.access_key_id or not settings.access_key_secret:
        raise ConfigurationError(
            f"a sink of kind {settings.kind} needs access_key_id and access_key_secret (or ..._env)"
        )
    return settings.access_key_id, settings.access_key_secret
