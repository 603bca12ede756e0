"""What a check of the doctor says, and where it looks."""

from dataclasses import dataclass
from enum import StrEnum

from jobmeter.collect import files


class Status(StrEnum):
    """How it is about one source of measurements.

    ``OK``: it is read. ``LIMITED``: it is read in part. ``ABSENT``: it is not read, because this machine has none, or
    this version has no collector for it. ``PROBLEM``: it should work and does not.
    """

    OK = "ok"
    LIMITED = "limited"
    ABSENT = "absent"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Check:
    """One source: ``area`` groups them, ``text`` says how it is and why, ``advice`` what to do, empty for nothing."""

    area: str
    name: str
    status: Status
    text: str
    advice: str = ""


@dataclass(frozen=True, slots=True)
class Machine:
    """Where the files of the machine are; others than these in tests."""

    proc: str = "/proc"
    sys: str = "/sys"
    dev: str = "/dev"
    run: str = "/run"
    var: str = "/var"

    def text(self, path: str) -> str:
        """The stripped text of a file, empty where it is missing or may not be read."""
        return (files.read(path) or b"").decode(errors="replace").strip()
