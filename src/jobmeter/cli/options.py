"""``--key TOKEN``, which does not stay in the list of processes."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource

_Function = TypeVar("_Function", bound=Callable[..., Any])
_ARGUMENTS_BEGIN = 48
"""The field of ``/proc/PID/stat``, counted from 1, with the address of the command line: see proc_pid_stat(5)."""


def key_option(help_text: str, **more: Any) -> Callable[[_Function], _Function]:  # noqa: ANN401 - as click has it
    """The option. Its value is overwritten in the command line that other users see."""
    return click.option("--key", metavar="TOKEN", help=help_text, callback=_checked, **more)


def _checked(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    if value and context.get_parameter_source(parameter.name or "") is ParameterSource.COMMANDLINE:
        overwrite_argument(value)
    return value


def overwrite_argument(value: str, process: Path = Path("/proc/self")) -> None:
    """Put ``x`` in place of each character of ``value`` in this process' own command line, where the system lets it.

    Until then, some milliseconds after the start, anybody on the machine can read it.
    """
    try:
        line = (process / "cmdline").read_bytes()
        fields = (process / "stat").read_bytes().rpartition(b")")[2].split()
        begin = int(fields[_ARGUMENTS_BEGIN - 3])  # the first two fields are before the bracket
        memory = os.open(process / "mem", os.O_RDWR)
    except (OSError, IndexError, ValueError):
        return
    try:
        if line and os.pread(memory, len(line), begin) == line:
            secret = os.fsencode(value)
            os.pwrite(memory, line.replace(secret, b"x" * len(secret)), begin)
    except (OSError, OverflowError):
        return
    finally:
        os.close(memory)
