"""Traffic of NFS and Lustre: /proc/self/mountstats, and the statistics of Lustre's clients and servers.

https://docs.kernel.org/filesystems/nfs/index.html and https://doc.lustre.org/lustre_manual.xhtml#lustreproc
"""

import re
from collections import Counter
from collections.abc import Iterator

from jobmeter.collect import files
from jobmeter.collect.base import NodeIdentity
from jobmeter.collect.host.base import NodeCollector, NodeReading
from jobmeter.collect.text import make_label_value

_MOUNT = re.compile(rb"device (\S+) mounted on (\S+) with fstype nfs4?(?: statvers=.*)?")
_BY_DATA = {b"READ": "read", b"WRITE": "write"}
_OTHER = "other"
_LUSTRE = (("llite", "stats"), ("obdfilter", "stats"), ("mdt", "md_stats"))
"""Folder and file of a client's mounts and of a server's targets."""
_LUSTRE_BYTES = {b"read_bytes": "node.lustre.read", b"write_bytes": "node.lustre.write"}
_MOST_PLACES, _MOST_OPERATIONS = 64, 64


class NetworkStorageCollector(NodeCollector):
    """Collector of the traffic of network filesystems. It never waits for a server."""

    name = "host.network.storage"
    metrics = (
        *("node.nfs.read", "node.nfs.write", "node.nfs.operations", "node.nfs.time"),
        *("node.nfs.retransmits", "node.nfs.timeouts", "node.lustre.operations", *_LUSTRE_BYTES.values()),
    )

    def __init__(self, place: NodeIdentity, proc_root: str = "/proc", sys_root: str = "/sys") -> None:
        super().__init__(place, proc_root, sys_root)
        # The first process sees the machine's mounts, even when this one does not.
        self._mounts = (f"{proc_root}/1/mountstats", f"{proc_root}/self/mountstats")
        roots = (f"{sys_root}/fs", f"{sys_root}/kernel/debug", f"{proc_root}/fs")
        self._lustre = [f"{root}/lustre" for root in roots]

    def _read(self) -> Iterator[NodeReading]:
        text = next((text for path in self._mounts if (text := files.read(path)) is not None), b"")
        yield from iterate_nfs_readings(text)
        yield from self._read_lustre()

    def _read_lustre(self) -> Iterator[NodeReading]:
        """Yield the readings of each filesystem and target once. Their folder depends on the version of Lustre."""
        seen: set[str] = set()
        for kind, file in _LUSTRE:
            for folder in self._lustre:
                for name in files.list_names(f"{folder}/{kind}"):
                    text = None if name in seen else files.read(f"{folder}/{kind}/{name}/{file}")
                    if text is not None and len(seen) < _MOST_PLACES:
                        seen.add(name)
                        yield from iterate_lustre_readings(make_label_value(name), text)


def iterate_nfs_readings(mountstats: bytes) -> Iterator[NodeReading]:
    """Yield the readings of each NFS mount, each mount point once."""
    seen: set[bytes] = set()
    for part in re.split(rb"^(?=device )", mountstats, flags=re.MULTILINE):
        mount = _MOUNT.match(part)
        if mount and mount[2] not in seen and len(seen) < _MOST_PLACES:
            seen.add(mount[2])
            yield from _nfs_mount(make_label_value(files.unescape_mount(mount[2])), part)


def _nfs_mount(point: str, text: bytes) -> Iterator[NodeReading]:
    labels = (("mount", point),)
    counts: Counter[str] = Counter()
    milliseconds: Counter[str] = Counter()
    timeouts = again = 0
    before, _, operations = text.partition(b"per-op statistics")
    for line in operations.splitlines():
        name, _, rest = line.strip().partition(b":")
        numbers = [int(word) for word in rest.split() if word.isdigit()]
        if len(numbers) >= 8:  # operations, transmissions, time-outs, bytes sent and received, and three times
            kind = _BY_DATA.get(name, _OTHER)
            counts[kind] += numbers[0]
            milliseconds[kind] += numbers[7]
            again += max(numbers[1] - numbers[0], 0)
            timeouts += numbers[2]
    size = re.search(rb"^\s*bytes:((?:[ \t]+\d+){8})", before, re.MULTILINE)
    if size:  # bytes of calls, of direct calls, then of the server
        words = size[1].split()
        yield "node.nfs.read", labels, float(words[4])
        yield "node.nfs.write", labels, float(words[5])
    if not counts:
        return
    for kind in (*_BY_DATA.values(), _OTHER):
        by_kind = (*labels, ("operation", kind))
        yield "node.nfs.operations", by_kind, float(counts[kind])
        yield "node.nfs.time", by_kind, milliseconds[kind] / 1000
    yield "node.nfs.retransmits", labels, float(again)
    yield "node.nfs.timeouts", labels, float(timeouts)


def iterate_lustre_readings(name: str, text: bytes) -> Iterator[NodeReading]:
    """Yield the readings of a filesystem or target: bytes moved, and the count of each operation."""
    labels = (("filesystem", name),)
    operations = 0
    for line in text.splitlines():
        words = line.split()  # name, count, samples, [unit], and for bytes least, most, sum
        if len(words) < 4 or words[2] != b"samples" or not words[1].isdigit():
            continue
        kind = words[0].decode(errors="replace")
        if words[0] in _LUSTRE_BYTES:
            if len(words) >= 7 and words[6].isdigit():
                yield _LUSTRE_BYTES[words[0]], labels, float(words[6])
            kind = kind.removesuffix("_bytes")
        operations += 1
        if operations <= _MOST_OPERATIONS:
            by_kind = (*labels, ("operation", make_label_value(kind)))
            yield "node.lustre.operations", by_kind, float(words[1])
