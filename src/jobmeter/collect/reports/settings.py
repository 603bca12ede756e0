"""Settings of the receivers of programs' numbers."""

from dataclasses import dataclass

SHARE, BURST_SECONDS = 0.1, 1.0
"""Share of a core that each receiver may use, and CPU seconds that it may use at once after a pause.

A receiver that has used more stops reading until its mean is at the share again.
"""


@dataclass(frozen=True, slots=True)
class ProgramSettings:
    """Places at which programs report. ``socket`` None: the default one; empty: closed.

    A port None: closed; 0: chosen by the system. ``form`` is a pattern of lines with numbers, whose groups are their
    names.
    """

    socket: str | None = None
    statsd: int | None = None
    otlp: int | None = None
    form: str | None = None
