"""Counts of missed short processes, in a file that ``jobmeter doctor`` reads."""

from pathlib import Path

import msgspec

from jobmeter.collect.state_file import StateFile

_FILE = "processes.json"


class ProcessCounts(msgspec.Struct, frozen=True):
    """Counts since ``since_ms``, when the agent started: ``missed`` processes began and ended unseen.

    ``problem`` is the reason why the kernel's events are not read, ``problem_of_ends`` the same for last figures; both
    are empty if they are read.
    """

    missed: int
    since_ms: int
    problem: str = ""
    problem_of_ends: str = ""


def make_counts_file(folder: Path | None) -> StateFile[ProcessCounts]:
    """Return the file in an agent's folder."""
    return StateFile(folder / _FILE if folder else None, msgspec.json.Decoder(ProcessCounts))
