"""How well short processes are found, in a file that ``jobmeter doctor`` reads."""

from pathlib import Path

import msgspec

from jobmeter.collect.state_file import StateFile

_FILE = "processes.json"


class ProcessCounts(msgspec.Struct, frozen=True):
    """``missed`` processes began and ended unseen since ``since_ms``, when the agent started.

    ``problem`` says why the kernel's events are not read, empty where they are; ``problem_of_ends`` why its last
    figures are not.
    """

    missed: int
    since_ms: int
    problem: str = ""
    problem_of_ends: str = ""


def counts_file(folder: Path | None) -> StateFile[ProcessCounts]:
    """The file in an agent's folder."""
    return StateFile(folder / _FILE if folder else None, msgspec.json.Decoder(ProcessCounts))
