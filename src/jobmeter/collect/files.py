"""Read small files of /proc and /sys with few system calls."""

import os
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_CHUNK = 65_536
_ESCAPE = re.compile(rb"\\([0-7]{3})")


def read(path: str, most: int = sys.maxsize) -> bytes | None:
    """Read a file, at most ``most`` bytes, which limits texts that users choose.

    None if it does not exist, is not readable, or belongs to a process that has ended.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        parts, size = [], 0
        while size < most and (part := os.read(descriptor, min(_CHUNK, most - size))):
            parts.append(part)
            size += len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)
    except OSError:
        return None
    finally:
        os.close(descriptor)


def make_folder(directory: Path) -> None:
    """Create a folder and its missing parents, for their owner alone. Raises OSError."""
    for one in (*reversed(directory.parents), directory):
        if not one.exists():
            one.mkdir(mode=0o700, exist_ok=True)


def read_required(*paths: str) -> bytes:
    """Read the first readable one of these files. Raises OSError without one."""
    text = next((text for path in paths if (text := read(path)) is not None), None)
    if text is None:
        raise OSError(f"{paths[-1]} cannot be read")
    return text


def list_names(folder: str) -> list[str]:
    """List the names in a folder in order; empty if it is not readable."""
    try:
        return sorted(os.listdir(folder))  # noqa: PTH208 - as few system calls as possible
    except OSError:
        return []


def list_numbers(folder: str | Path, prefix: str, most: int = sys.maxsize) -> list[int]:
    """Return the numbers below ``most`` in the names of a folder that consist of ``prefix`` and a number, ascending."""
    ends = (name.removeprefix(prefix) for name in list_names(str(folder)) if name.startswith(prefix))
    return sorted(int(end) for end in ends if end.isdigit() and int(end) < most)


def read_link_target(path: str) -> str:
    """Return the target of a symbolic link; empty if it is not readable."""
    try:
        return os.readlink(path)  # noqa: PTH115 - as few system calls as possible
    except OSError:
        return ""


def read_major_number(path: str) -> int:
    """Return the major number of a device's file; 0 for any other file and without a file."""
    try:
        return os.major(os.stat(path).st_rdev)  # noqa: PTH116 - as few system calls as possible
    except OSError:
        return 0


def read_text(path: str) -> str:
    """Return the stripped text of a file; empty if it is not readable."""
    return (read(path) or b"").decode(errors="replace").strip()


def read_boot_id(proc_root: str = "/proc") -> str:
    """Return the id of this boot; empty if the kernel has none."""
    return read_text(f"{proc_root}/sys/kernel/random/boot_id")


def read_number(path: str, base: int = 10) -> int | None:
    """Read a whole number; None without one (``max``, an empty or a missing file)."""
    text = read(path)
    try:
        return None if text is None else int(text, base)
    except ValueError:
        return None


def read_pairs(path: str) -> dict[bytes, int] | None:
    """Read a file of ``name value`` lines; None if it is missing. See ``parse_pairs``."""
    text = read(path)
    return None if text is None else parse_pairs(text)


def parse_pairs(text: bytes) -> dict[bytes, int]:
    """Parse ``name value`` lines with whole numbers. A colon behind the name is dropped, other lines are left out."""
    found: dict[bytes, int] = {}
    for line in text.splitlines():
        with suppress(ValueError):
            name, number, *_ = line.split(None, 2)
            found[name.rstrip(b":")] = int(number)
    return found


class Mount(NamedTuple):
    """Mount: ``root`` is the part of the filesystem that is mounted at ``point``."""

    device: bytes
    root: str
    point: str
    kind: str
    options: str


def parse_mounts(mountinfo: bytes) -> Iterator[Mount]:
    """Parse the mounts in a mountinfo file (proc_pid_mountinfo(5)), with the options of their filesystems."""
    for line in mountinfo.splitlines():
        before, _, behind = line.partition(b" - ")
        words, details = before.split(), behind.split()
        if len(words) >= 5 and details:
            yield Mount(words[2], *map(unescape_mount, (words[3], words[4], details[0], details[-1])))


def unescape_mount(text: bytes) -> str:
    """Decode a path of a list of mounts, in which the kernel writes spaces as octal numbers."""
    return _ESCAPE.sub(lambda match: bytes([int(match[1], 8)]), text).decode(errors="replace")
