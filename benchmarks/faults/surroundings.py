"""Surroundings of real jobs: a control group with a limit, a file on a disk, a small filesystem on a loop device."""

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
    """Make a control group, and yield the shell command that enters it. The group is removed after the context.

    Yields an empty text without ``group``, and None if the group cannot be made.
    """
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
    """Write a file of ``megabytes`` MiB, and yield its path and its disk's numbers (``254:0``).

    Yields None if files are not on a block device. The file is deleted after the context.
    """
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
            os.fsync(file.fileno())  # the job's posix_fadvise drops only clean pages from the page cache
        yield path, disk


def _disk_of(path: Path) -> str | None:
    """Return the numbers of the whole disk with a folder, because the block layer does not throttle partitions.

    Returns None if the folder is not on a block device.
    """
    device = path.stat().st_dev
    folder = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}")
    try:
        folder = folder.resolve(strict=True)
        return ((folder.parent if (folder / "partition").exists() else folder) / "dev").read_text().strip()
    except OSError:
        return None


@contextmanager
def small_disk(megabytes: int) -> Iterator[Path | None]:
    """Mount a new ext4 filesystem of ``megabytes`` MiB, and yield its folder, or None if that is not possible.

    The filesystem lies in a file, and is deleted after the context.
    """
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
