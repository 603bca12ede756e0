"""Retention of measurements."""

import msgspec


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """Retention of each tier of a project, in days (1 to 36,500). Job summaries are stored for ever."""

    raw_days: int = 15
    minute_days: int = 90
    hour_days: int = 730
