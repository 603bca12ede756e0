"""Surroundings of a job with a fault: a control group with a limit, a small filesystem on a loop device."""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_GROUPS = Path("/sys/fs/cgroup")
_SECONDS = 20.0


@contextmanager
def control_group(group: tuple[str, str, str] | None) -> Iterator[str | None]:
    """Return the command by which a shell enters such a control group; "" for no group, None where none can be made."""
    if group is None:
        yield ""
        return
    controller, file, value = group
    folder = _GROUPS / controller / f"jobmeter-faults-{os.getpid()}"
    try:
        folder.mkdir()
        (folder / file).write_text(value)
    except OSError:
        with suppress(OSError):
            folder.rmdir()
        yield None
        return
    try:
        yield f"echo 0 > {folder}/cgroup.procs"
    finally:
        with suppress(OSError):
            folder.rmdir()


@contextmanager
def data_file(megabytes: int) -> Iterator[tuple[Path, str] | None]:
    """A file on a disk, and the numbers of that disk (``254:0``); None where files are not on a block device."""
    with tempfile.TemporaryDirectory(prefix="jobmeter-data-", dir="/var/tmp") as place:
        disk = _disk_of(Path(place))
        if disk is None:
            yield None
            return
        path = Path(place) / "data"
        with path.open("wb") as file:
            for _ in range(megabytes):
                file.write(bytes(2**20))
            file.flush()
            os.fsync(file.fileno())  # only pages that are clean leave the cache when they are told to
        yield path, disk


def _disk_of(path: Path) -> str | None:
    """The whole disk that a folder is on: the block layer limits no partition."""
    device = path.stat().st_dev
    folder = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}")
    try:
        folder = folder.resolve(strict=True)
        return ((folder.parent if (folder / "partition").exists() else folder) / "dev").read_text().strip()
    except OSError:
        return None


@contextmanager
def small_disk(megabytes: int) -> Iterator[Path | None]:
    """A new ext4 filesystem in a file; None where none can be made or mounted here."""
    with tempfile.TemporaryDirectory(prefix="jobmeter-disk-") as place:
        image, mount = Path(place) / "image", Path(place) / "mount"
        mount.mkdir()
        with image.open("wb") as file:
            file.truncate(megabytes * 2**20)
        made = _done("mkfs.ext4", "-q", "-F", str(image)) and _done("mount", "-o", "loop", str(image), str(mount))
        try:
            yield mount if made else None
        finally:
            if made:
                _done("umount", str(mount))


def _done(*command: str) -> bool:
    try:
        return subprocess.run(command, capture_output=True, timeout=_SECONDS, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False
