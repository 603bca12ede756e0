"""Data folder: locked by one server at a time, private to its owner, with a note about the server process."""

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from jobmeter.errors import ConfigurationError
from jobmeter.files import replace_file
from jobmeter.model.time import Clock, format_iso

NOTE, LOCK, ADMIN_KEY = "server.json", "server.lock", "admin.key"


class Note(msgspec.Struct, frozen=True, omit_defaults=True):
    """Process that serves a data folder, and its address. ``started`` is ISO 8601."""

    pid: int
    url: str
    started: str
    opentsdb_port: int | None = None
    """Port of OpenTSDB's telnet protocol. None when it is off."""
    otlp_grpc_port: int | None = None
    """Port of OTLP over gRPC. None when it is off."""


@contextlib.contextmanager
def claim(data: Path) -> Iterator[None]:
    """Create the folder if it is missing and lock it for this process.

    Raises ConfigurationError when another server has locked it, or when it cannot be written.
    """
    try:
        data.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(data / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise ConfigurationError(f"the data folder {data} cannot be used: {error.strerror}") from error
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ConfigurationError(f"another server uses the data folder {data}{_describe_owner(data)}") from error
        _check_writable(data)
        yield
    finally:
        os.close(handle)


def read_note(data: Path) -> Note | None:
    """Read the note in a data folder; None if it is missing or damaged. Its process may have ended."""
    try:
        return msgspec.json.decode((data / NOTE).read_bytes(), type=Note)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None


@contextlib.contextmanager
def write_note(data: Path, url: str, clock: Clock, **ports: int | None) -> Iterator[None]:
    """Write a note about this process while it serves. ``ports`` are fields of ``Note``."""
    note = Note(os.getpid(), url, format_iso(clock.now_ms()), **ports)
    write_private(data / NOTE, msgspec.json.encode(note) + b"\n")
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            (data / NOTE).unlink()


def write_private(path: Path, content: bytes) -> None:
    """Replace a file atomically, readable by its owner only.

    Raises ConfigurationError when it cannot be written.
    """
    try:
        replace_file(path, content)
    except OSError as error:
        raise ConfigurationError(f"cannot write {path}: {error.strerror}") from error


def _check_writable(data: Path) -> None:
    probe = data / f".probe.{os.getpid()}"
    try:
        probe.write_bytes(b"\0" * 4096)
    except OSError as error:
        problem = "is full" if error.errno in {errno.ENOSPC, errno.EDQUOT} else "cannot be written"
        raise ConfigurationError(f"the data folder {data} {problem}: {error.strerror}") from error
    finally:
        with contextlib.suppress(OSError):
            probe.unlink()


def _describe_owner(data: Path) -> str:
    note = read_note(data)
    return f" (process {note.pid}, {note.url})" if note else ""
