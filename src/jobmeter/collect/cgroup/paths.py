"""Locations of control groups: the mounted hierarchies, and the groups of a process."""

from collections.abc import Mapping
from pathlib import PurePosixPath

from jobmeter.collect import files

UNIFIED = ""
"""Name of the version 2 hierarchy; hierarchies of version 1 have the names of their controllers."""

Groups = dict[str, str]
"""Path of a process's group in each hierarchy: by controller, ``UNIFIED`` for version 2."""


def groups_of(proc_root: str, pid: int) -> Groups | None:
    """Return the groups of a process; None if it has ended.

    Hierarchies without a controller (systemd's own) are left out.
    """
    text = files.read(f"{proc_root}/{pid}/cgroup")
    return None if text is None else parse_groups(text.decode(errors="replace"))


def parse_groups(text: str) -> Groups:
    """The groups that a /proc/PID/cgroup file names."""
    groups: Groups = {}
    for line in text.splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            groups[UNIFIED] = path
        else:
            groups.update({name: path for name in controllers.split(",") if name and not name.startswith("name=")})
    return groups


def cpu_controller(groups: Mapping[str, str]) -> str | None:
    """Return the controller that counts CPU time; None if these groups count none."""
    if "cpuacct" in groups:
        return "cpuacct"
    # Beside version 1, a group of version 2 counts only pressure.
    return UNIFIED if set(groups) == {UNIFIED} else None


class Hierarchies:
    """Hierarchies of this machine, by controller. ``prefix`` precedes every mount point (recorded trees)."""

    def __init__(self, proc_root: str = "/proc", prefix: str = "") -> None:
        text = files.read(f"{proc_root}/self/mountinfo") or b""
        self._mounts = _hierarchies(text)
        self._prefix = prefix

    def directory(self, controller: str, path: str) -> str | None:
        """Return the folder of a group; None if the hierarchy is not mounted or the group lies outside it."""
        mount = self._mounts.get(controller)
        if mount is None:
            return None
        if mount.root != "/":
            if path != mount.root and not path.startswith(mount.root + "/"):
                return None
            path = path[len(mount.root) :]
        if ".." in PurePosixPath(path).parts:
            return None
        return f"{self._prefix}{mount.point}{path}".rstrip("/")

    def top(self, controller: str) -> str | None:
        """The top folder of the mounted hierarchy."""
        mount = self._mounts.get(controller)
        return None if mount is None else f"{self._prefix}{mount.point}"


def _hierarchies(mountinfo: bytes) -> dict[str, files.Mount]:
    found: dict[str, files.Mount] = {}
    for mount in files.parse_mounts(mountinfo):
        if mount.kind == "cgroup2":
            found.setdefault(UNIFIED, mount)
        elif mount.kind == "cgroup":
            for option in mount.options.split(","):
                if not option.startswith("name=") and option not in {"rw", "ro"}:
                    found.setdefault(option, mount)
    return found
