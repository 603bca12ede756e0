"""Stacks of a Python process by py-spy, which reads the memory of the process without stopping it."""

import os
import shutil
import sys
from pathlib import Path
from typing import Any

import msgspec

from jobmeter.collect.stacks.child import run_aside
from jobmeter.collect.text import escape_invalid
from jobmeter.model.stacks import LONGEST_TEXT, MOST_FRAMES, MOST_THREADS, StackFrame, ThreadStack

_SECONDS = 5.0
_MOST = 4 * 1024 * 1024
NOT_INSTALLED = "no Python stacks: py-spy is not installed; install jobmeter[stacks] where the agent runs"
NOT_PERMITTED = (
    "no Python stacks: the kernel does not let py-spy read the process; run the agent as root, give it "
    "CAP_SYS_PTRACE, or set kernel.yama.ptrace_scope to 0"
)
NO_PYTHON = "no Python stacks: py-spy knows no Python interpreter in the process"


class _Spied(msgspec.Struct):
    """Used parts of py-spy's JSON."""

    os_thread_id: int | None = None
    thread_name: str | None = None
    frames: list[dict[str, Any]] = []


def find_py_spy() -> str | None:
    """Return the path of py-spy, beside this interpreter or on PATH."""
    beside = Path(sys.executable).parent / "py-spy"
    return str(beside) if os.access(beside, os.X_OK) else shutil.which("py-spy")


def read_python_stacks(pid: int, py_spy: str | None) -> tuple[list[ThreadStack], str]:
    """Return the stacks of the threads of a process, and the reason if there are none."""
    if py_spy is None:
        return [], NOT_INSTALLED
    command = [py_spy, "dump", "--nonblocking", "--json", "--pid", str(pid)]
    try:
        output = run_aside(command, _SECONDS, _MOST)
    except OSError as error:
        return [], f"no Python stacks: {py_spy} cannot be started: {error.strerror or error}"
    if output.problem:
        return [], f"no Python stacks: py-spy was ended, {output.problem}"
    found = parse_dump(output.out)
    return (found, "") if found else ([], _reason(output.error.decode(errors="replace")))


def parse_dump(text: bytes) -> list[ThreadStack]:
    """Return the threads of ``py-spy dump --json``, the main thread first; empty for other text."""
    try:
        spied = msgspec.json.decode(text, type=list[_Spied])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return []
    found = [
        ThreadStack(
            one.os_thread_id, clip(one.thread_name or ""), [_frame(frame) for frame in one.frames[:MOST_FRAMES]]
        )
        for one in spied
        if one.os_thread_id
    ]
    return sorted(found, key=lambda thread: (thread.name != "MainThread", thread.id))[:MOST_THREADS]


def clip(text: str) -> str:
    """Return a text of a process as valid UTF-8, shortened to the limit of a text."""
    return escape_invalid(text)[:LONGEST_TEXT]


def _frame(frame: dict[str, Any]) -> StackFrame:
    line = frame.get("line")
    file = str(frame.get("filename") or frame.get("short_filename") or "")
    return StackFrame(clip(str(frame.get("name") or "")), clip(file), line if isinstance(line, int) else 0)


def _reason(error: str) -> str:
    lowered = error.lower()
    if "permission denied" in lowered or "operation not permitted" in lowered or "os error 1)" in lowered:
        return NOT_PERMITTED
    if "python version" in lowered or "python binary" in lowered or "find libpython" in lowered:
        return NO_PYTHON
    first = error.strip().partition("\n")[0].removeprefix("Error: ")
    return clip(f"no Python stacks: {first or 'py-spy printed nothing'}")
