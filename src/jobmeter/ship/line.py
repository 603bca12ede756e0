"""Lines in the form in which they are shipped."""

from functools import cached_property

import msgspec

from jobmeter.model.event import Level
from jobmeter.model.log import LogLine

_TEXT_FIELDS = frozenset({"time_ns", "text", "level"})
_LEVELS = {Level.DEBUG: "debug", Level.INFO: "info", Level.WARNING: "warn", Level.ERROR: "error"}
"""Words for levels that sinks understand."""


class ShippedLine(msgspec.Struct, frozen=True, dict=True):
    """Log line with its number, which grows by arrival within one shipper.

    A line that arrives twice gets two numbers.
    """

    number: int
    arrived: int
    resource_group: str
    line: LogLine

    @cached_property
    def attributes(self) -> dict[str, str]:
        """Fields that identify the source of the line, as texts, without empty ones."""
        values = {name: getattr(self.line, name) for name in self.line.__struct_fields__ if name not in _TEXT_FIELDS}
        found = {name: str(value) for name, value in values.items() if value not in {"", None}}
        return {"resource_group": self.resource_group, **found}

    @property
    def level(self) -> str:
        """Level of the line, empty if unknown."""
        return _LEVELS.get(self.line.level, "") if self.line.level is not None else ""

    def encode(self) -> bytes:
        """Encode as a JSON line without its newline."""
        level = {"level": self.level} if self.level else {}
        attributes = self.attributes | ({"attempt": self.line.attempt} if "attempt" in self.attributes else {})
        return msgspec.json.encode(
            {"time_ns": self.line.time_ns, "number": self.number, **attributes, **level, "text": self.line.text}
        )
