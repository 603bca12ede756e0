"""Run Slurm's commands, with limits of time and output."""

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence

from jobmeter.errors import ConfigurationError, LimitExceededError, UnavailableError

SECONDS = 60.0
"""Time limit in seconds of a command. Without a controller each fails after about ten."""
MOST_BYTES = 256 * 2**20


def find(name: str) -> str:
    """Find a command. Raises ConfigurationError if it is not on the path."""
    found = shutil.which(name)
    if found is None:
        raise ConfigurationError(
            f"{name} is not on the path: run this where Slurm's commands are, or give --rest, the address of slurmrestd"
        )
    return found


def run(command: Sequence[str], environment: Mapping[str, str] | None = None) -> bytes:
    """Return the output of a command. Raises UnavailableError with its message if it fails or takes too long."""
    name = command[0].rpartition("/")[2]
    try:
        with subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **(environment or {})},
        ) as process:
            try:
                output, complaint = process.communicate(timeout=SECONDS)
            except subprocess.TimeoutExpired as error:
                process.kill()
                raise UnavailableError(f"{name} did not end within {SECONDS:g} s") from error
    except OSError as error:
        raise UnavailableError(f"{name} cannot be started: {error}") from error
    if process.returncode:
        said = complaint.decode(errors="replace").strip().splitlines()
        raise UnavailableError(f"{name} failed with status {process.returncode}: {said[-1] if said else 'no message'}")
    if len(output) > MOST_BYTES:
        raise LimitExceededError(f"{name} printed more than {MOST_BYTES} bytes")
    return output
