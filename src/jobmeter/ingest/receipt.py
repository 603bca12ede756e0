"""What a sender is told."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What became of a request: ``accepted`` samples are durable, ``rejected`` ones are counted by reason.

    The same for log lines: ``lines`` and ``rejected_lines``.

    Reasons: ``future`` (further ahead than the allowed clock error), ``expired`` (older than the project's retention).
    """

    accepted: int = 0
    records: int = 0
    rejected: dict[str, int] = field(default_factory=dict)
    lines: int = 0
    rejected_lines: dict[str, int] = field(default_factory=dict)
