"""How long measurements are stored."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How long each tier of a project is stored, in days (1 to 36,500). Job summaries are stored for ever."""

    raw_days: int = 15
    minute_days: int = 90
    hour_days: int = 730
