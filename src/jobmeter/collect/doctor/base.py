"""The result of a check, and the machine that it reads."""

from dataclasses import dataclass
from enum import StrEnum


class Status(StrEnum):
    """The status of one source of measurements.

    ``OK``: it is read. ``LIMITED``: it is read in part. ``ABSENT``: it is not read, because this machine has none, or
    this version has no collector for it. ``PROBLEM``: it should work and does not.
    """

    OK = "ok"
    LIMITED = "limited"
    ABSENT = "absent"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Check:
    """One source: ``area`` is its group, ``text`` the status and its reason, ``advice`` what to do, if anything."""

    area: str
    name: str
    status: Status
    text: str
    advice: str = ""


@dataclass(frozen=True, slots=True)
class Machine:
    """The paths of the machine's files; tests replace them."""

    proc: str = "/proc"
    sys: str = "/sys"
    dev: str = "/dev"
    run: str = "/run"
    var: str = "/var"
