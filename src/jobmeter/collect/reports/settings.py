"""Settings of the receivers of programs' numbers."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ProgramSettings:
    """Places at which programs report. ``socket`` None: the default one. A port None: closed; 0: chosen by the system.

    An empty ``socket`` is closed too. ``form`` is a pattern of lines with numbers, whose groups are their names.
    """

    socket: str | None = None
    statsd: int | None = None
    otlp: int | None = None
    form: str | None = None
