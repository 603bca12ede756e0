"""What a sender is told."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What became of a request: ``accepted`` samples are durable, ``rejected`` ones are counted by reason.

    Reasons: ``future`` (further ahead than the allowed clock error), ``expired`` (older than the project's retention).
    """

    accepted: int = 0
    records: int = 0
    rejected: dict[str, int] = field(default_factory=dict)
