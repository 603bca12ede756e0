"""systemd's journal, through a process of journalctl that follows it.

Fields: https://www.freedesktop.org/software/systemd/man/latest/systemd.journal-fields.html.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from jobmeter.collect.syslog.base import LogReading, Position, SystemLogEntry
from jobmeter.collect.syslog.lines import LineCutter, LinePiece
from jobmeter.model.log import MAX_SYSTEM_NAME, is_cut
from jobmeter.model.syslog import name_facility

_FIELDS = "MESSAGE,PRIORITY,SYSLOG_FACILITY,SYSLOG_IDENTIFIER,_PID,_UID,_TRANSPORT"
_COMMAND = ("journalctl", "--output=json", "--quiet", "--no-pager", f"--output-fields={_FIELDS}")
_PLACES = (Path("/run/log/journal"), Path("/var/log/journal"))
_CHUNK = 256 * 1024
_NUMBER = re.compile(r"(?:^|;)i=([0-9a-f]+)")


def has_journal() -> bool:
    """Return True if this machine has a journal and its reader."""
    return shutil.which("journalctl") is not None and any(path.is_dir() for path in _PLACES)


class JournalSource:
    """Lines of the journal since a position, or since its newest line."""

    key = "journal"
    stream = "journal"

    def __init__(self, arguments: Sequence[str] = (), *, kernel: bool = False) -> None:
        """Pass ``arguments`` to journalctl. Without ``kernel``, the lines of the kernel's log are left out."""
        self._arguments = arguments
        self._kernel = kernel
        self._process: subprocess.Popen[bytes] | None = None
        self._cutter = LineCutter(4 * 2**20)
        self._waiting: list[tuple[SystemLogEntry | None, str]] = []
        self._at = ""

    def read(self, position: Position | None, until: Position | None = None) -> LogReading | None:
        """Return the next lines."""
        if position is None:
            return LogReading([], {"cursor": self._read_newest_cursor()}, more=True)
        cursor = str(position["cursor"])
        if self._process is None or cursor != self._at or until is not None:
            # A repeated reading ends with the journal: its last line may have been removed.
            self._start(cursor, follow=until is None)
        more = self._fill(until)
        found, self._waiting = self._waiting, []
        if until is not None:
            places = [place for place, (_, one) in enumerate(found) if one == until["cursor"]]
            last = places[0] + 1 if places else len(found)
            self.close()  # the journal is followed from there on
            found = found[:last]
        if not found:
            return None
        self._at = found[-1][1]
        return LogReading([entry for entry, _ in found if entry is not None], {"cursor": self._at}, more)

    def close(self) -> None:
        """End the process of journalctl."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()
        self._cutter = LineCutter(4 * 2**20)
        self._waiting = []

    def _read_newest_cursor(self) -> str:
        """Return the cursor of the newest line; empty without any."""
        command = [*_COMMAND, "--lines=1", *self._arguments]
        found = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=30, check=False)
        try:
            return str(msgspec.json.decode(found.stdout.strip() or b"{}").get("__CURSOR", ""))
        except (msgspec.DecodeError, AttributeError):
            return ""

    def _start(self, cursor: str, *, follow: bool) -> None:
        self.close()
        place = [f"--after-cursor={cursor}"] if cursor else []
        self._process = subprocess.Popen(
            [*_COMMAND, "--all", *(["--follow", "--no-tail"] if follow else []), *place, *self._arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        if self._process.stdout is not None:
            os.set_blocking(self._process.stdout.fileno(), not follow)
        self._at = cursor

    def _fill(self, until: Position | None) -> bool:
        """Read a limited amount, or up to ``until``. True if there may be more."""
        stdout = self._process.stdout if self._process else None
        while stdout is not None:
            try:
                data = os.read(stdout.fileno(), _CHUNK)
            except BlockingIOError:
                return False
            if not data:  # the reader has exited: the next reading starts another one
                waiting = self._waiting
                self.close()
                self._waiting = waiting
                return False
            for piece in self._cutter.feed(data):
                self._take(piece)
            if until is None or any(one == until["cursor"] for _, one in self._waiting):
                return len(data) == _CHUNK
        return False

    def _take(self, piece: LinePiece) -> None:
        before = self._waiting[-1][1] if self._waiting else self._at
        if is_cut(piece.text):
            self._waiting.append(
                (SystemLogEntry(f"[jobmeter: a line of {piece.length} bytes is left out here]", severity=4), before)
            )
            return
        try:
            fields: dict[str, Any] = msgspec.json.decode(piece.text)
            cursor = str(fields["__CURSOR"])
        except (msgspec.DecodeError, KeyError, TypeError):
            return
        if not self._kernel and _is_of_kernel(fields):
            self._waiting.append((None, cursor))
        else:
            self._waiting.append((_entry(fields, cursor), cursor))


def _entry(fields: dict[str, Any], cursor: str) -> SystemLogEntry:
    number = _NUMBER.search(cursor)
    micros = int(fields.get("__REALTIME_TIMESTAMP") or 0)
    tag = "".join(filter(str.isprintable, _text(fields.get("SYSLOG_IDENTIFIER"))))[:MAX_SYSTEM_NAME]
    return SystemLogEntry(
        _text(fields.get("MESSAGE")),
        micros * 1_000 + (int(number[1], 16) % 1_000 if number else 0),
        severity=_number(fields.get("PRIORITY"), 7),
        facility=_facility(fields),
        tag=tag,
        pid=_number(fields.get("_PID"), 2**31),
    )


def _is_of_kernel(fields: dict[str, Any]) -> bool:
    """Return True for a line of the kernel's log. Exported journals may lack the transport."""
    transport = fields.get("_TRANSPORT")
    return transport == "kernel" or (transport is None and fields.get("SYSLOG_FACILITY") == "0")


def _facility(fields: dict[str, Any]) -> str:
    """Return the name of the line's facility; ``daemon`` for a service's line without one.

    Rules trust lines of the facility ``kern``, and any program may name any facility. So a line of an unprivileged
    user, by the journal's own field ``_UID``, gets ``user``, as over syslog.
    """
    number = _number(fields.get("SYSLOG_FACILITY"), 23)
    if number is None:
        return "kern" if _is_of_kernel(fields) else "daemon"
    forged = number == 0 and not _is_of_kernel(fields) and fields.get("_UID") not in {None, "0"}
    return "user" if forged else name_facility(number)


def _text(value: object) -> str:
    """Return the text of a field. Invalid text is a list of numbers, a repeated field a list of texts."""
    if isinstance(value, list) and all(isinstance(one, int) and 0 <= one < 256 for one in value):
        return bytes(value).decode(errors="replace")
    if isinstance(value, list):
        return " ".join(map(_text, value))
    return value if isinstance(value, str) else ""


def _number(value: object, most: int) -> int | None:
    return int(value) if isinstance(value, str) and value.isdigit() and int(value) <= most else None
