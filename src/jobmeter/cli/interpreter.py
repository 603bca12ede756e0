"""Explains why an existing script does not start: the interpreter in its first line is missing."""

import os
import shutil
from pathlib import Path

_FIRST_LINE = 256
"""As much as Linux reads of it: see execve(2)."""


def missing_interpreter(program: str) -> str:
    """``its interpreter PATH is not there``; empty where the interpreter exists."""
    found = shutil.which(program, os.F_OK)
    if found is None:
        return ""
    try:
        with Path(found).open("rb") as file:
            first = file.read(_FIRST_LINE).split(b"\n", 1)[0]
    except OSError:
        return ""
    words = os.fsdecode(first.removeprefix(b"#!")).strip(" \t").split(None, 1)
    if not first.startswith(b"#!") or not words or Path(words[0]).exists():
        return ""
    ending = " (its first line ends with a carriage return)" if first.endswith(b"\r") else ""
    return f"its interpreter {words[0].strip()} is not there{ending}"
