"""Filesystems that a replica uses, by its processes' working directories and open files.

Links in /proc are compared with mount points. Nothing is looked up in the filesystem itself, which may hang.
"""

import os
import stat
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cached_property

from jobmeter.collect import files
from jobmeter.collect.base import NodeIdentity, Owner, Samples
from jobmeter.collect.discover.member import Process
from jobmeter.collect.discover.table import ProcessTable
from jobmeter.collect.host.filesystem import map_points_by_device
from jobmeter.model.sample import Sample

ELSEWHERE = "other"
"""Label of paths on no measured filesystem: one in memory, for example."""
_MOST_LINKS = 1_000
"""Links that are read in one turn. If that does not suffice for all replicas, they take turns."""
_MOST_OF_REPLICA = 500
"""Links that are read of one replica, oldest processes first."""


class MountTable:
    """Mounts of a namespace, by which a path leads to its filesystem."""

    def __init__(self, mountinfo: bytes) -> None:
        self._mountinfo = mountinfo
        # A later mount over a point hides the earlier one.
        self._mounts = {mount.point: mount for mount in files.parse_mounts(mountinfo)}

    @cached_property
    def points(self) -> Mapping[bytes, str]:
        """Mount point under which a filesystem is measured, by device."""
        return map_points_by_device(self._mountinfo)

    def find_point(self, path: str, own: "MountTable") -> str:
        """Return the label of a path's filesystem.

        ``own`` are the agent's mounts, by which filesystems are labelled.
        """
        mount = self._find_mount(path)
        if mount is None:
            return ELSEWHERE
        if (point := own.points.get(mount.device)) is not None:
            return point
        upper = next((one[9:] for one in mount.options.split(",") if one.startswith("upperdir=")), "")
        # A container's own root lies on a filesystem of the node.
        return own.find_point(upper, own) if upper and (own is not self or upper != path) else ELSEWHERE

    def _find_mount(self, path: str) -> files.Mount | None:
        while True:
            if (mount := self._mounts.get(path or "/")) is not None:
                return mount
            if path in ("", "/"):
                return None
            path = path.rpartition("/")[0]


class MountsCollector:
    """Collector of filesystem use. A replica without readable links has no samples."""

    name = "mounts"
    metrics = ("storage.processes", "storage.files.written")

    def __init__(self, place: NodeIdentity, table: ProcessTable, proc_root: str = "/proc") -> None:
        self._place = place
        self._table = table
        self._proc = proc_root
        self._turn = 0

    def collect(self, now_ms: int) -> Samples:
        """Count working directories and open files by filesystem."""
        replicas: dict[Owner, list[Process]] = {}
        for process in self._table.list_processes():
            if not process.member.measured and not process.stat.ended:
                replicas.setdefault(process.member.owner, []).append(process)
        mountinfo = files.read(f"{self._proc}/self/mountinfo")
        if not replicas or mountinfo is None:
            return []
        own = MountTable(mountinfo)
        tables = {self._read_namespace("self"): own}
        samples: Samples = []
        left, owners = _MOST_LINKS, list(replicas)
        begin = self._turn % len(owners)
        for owner in owners[begin:] + owners[:begin]:
            if left <= 0:
                break
            self._turn += 1
            counts, links = self._count(replicas[owner], tables, own)
            left -= links
            samples += [
                Sample(self._place.make_replica_series(metric, owner, (("mount", point),)), now_ms, float(count))
                for (metric, point), count in counts.items()
            ]
        return samples

    def _count(
        self, processes: list[Process], tables: dict[str, MountTable], own: MountTable
    ) -> tuple[Counter[tuple[str, str]], int]:
        """Count working directories and files of a replica by metric and mount point.

        Also return the number of read links.
        """
        counts: Counter[tuple[str, str]] = Counter()
        links = 0
        for process in sorted(processes, key=lambda one: one.stat.key.start):
            if links >= _MOST_OF_REPLICA:
                break
            pid = process.stat.key.pid
            mounts = self._mounts(pid, tables)
            for metric, path in self._read_links(pid, _MOST_OF_REPLICA - links):
                links += 1
                if path and mounts is not None:
                    counts[metric, mounts.find_point(path, own)] += 1
        return counts, links

    def _read_links(self, pid: int, most: int) -> Iterator[tuple[str, str]]:
        """Yield the metric and path of each readable link of a process; the path of anything but a file is empty."""
        yield self.metrics[0], _path(f"{self._proc}/{pid}/cwd")
        try:
            numbers = os.listdir(f"{self._proc}/{pid}/fd")  # noqa: PTH208 - one call
        except OSError:
            return
        for number in numbers[: most - 1]:
            link = f"{self._proc}/{pid}/fd/{number}"
            try:
                # The link's own mode tells how the file was opened (proc_pid_fd(5)).
                written = os.lstat(link).st_mode & stat.S_IWUSR
            except OSError:
                continue
            yield self.metrics[1], _path(link) if written else ""

    def _mounts(self, pid: int, tables: dict[str, MountTable]) -> MountTable | None:
        namespace = self._read_namespace(str(pid))
        if namespace not in tables:
            mountinfo = files.read(f"{self._proc}/{pid}/mountinfo")
            if mountinfo is None:
                return None
            tables[namespace] = MountTable(mountinfo)
        return tables[namespace]

    def _read_namespace(self, pid: str) -> str:
        return files.read_link_target(f"{self._proc}/{pid}/ns/mnt") or pid


def _path(link: str) -> str:
    """Return the path of a link; empty for sockets, pipes and devices."""
    path = files.read_link_target(link)
    return path if path.startswith("/") and not path.startswith(("/dev/", "/proc/", "/sys/")) else ""
