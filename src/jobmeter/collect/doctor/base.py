"""Result of a check of the doctor."""

from dataclasses import dataclass
from enum import StrEnum


class Status(StrEnum):
    """Status of a source of measurements.

    ``OK``: read. ``LIMITED``: partially read. ``ABSENT``: not read, because this machine has none, or this version has
    no collector for it. ``PROBLEM``: broken.
    """

    OK = "ok"
    LIMITED = "limited"
    ABSENT = "absent"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Check:
    """Result of a check: ``area`` is its group, ``text`` the status and its reason, ``advice`` the remedy, if any."""

    area: str
    name: str
    status: Status
    text: str
    advice: str = ""
