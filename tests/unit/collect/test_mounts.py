"""Tests of the filesystems that a replica works in and writes to: trees of links, and real processes."""

import subprocess
import sys

import pytest
from tests.support.waiting import wait_until
from tests.unit.collect.trees import HOST, plant, plant_process

from jobmeter.collect import mounts
from jobmeter.collect.base import NodeIdentity, Owner
from jobmeter.collect.discover.classify import NodeClassifier
from jobmeter.collect.discover.member import Member, MembershipSource
from jobmeter.collect.discover.table import ProcessTable
from jobmeter.collect.launch.family import Family
from jobmeter.collect.mounts import ELSEWHERE, MountsCollector, MountTable
from jobmeter.testing.collector import NOW_MS, CollectorContract

WORKED, WRITTEN = "storage.processes", "storage.files.written"
OWN = b"""\
30 1 254:1 / / rw - ext4 /dev/vda1 rw
31 30 0:50 / /data rw - nfs4 server:/data rw
32 30 0:22 / /run rw - tmpfs tmpfs rw
33 30 254:2 /containers /var/lib/containerd rw - xfs /dev/vdb rw
34 30 7:0 / /data/inner rw - ext4 /dev/loop0 rw
35 30 254:2 /other /srv rw - xfs /dev/vdb rw
"""
CONTAINER = b"""\
90 80 0:99 / / rw - overlay overlay rw,lowerdir=/l,upperdir=/var/lib/containerd/7/fs,workdir=/w
91 90 0:50 /team /input rw - nfs4 server:/data rw
92 90 0:23 / /tmp rw - tmpfs tmpfs rw
93 90 0:98 / /weird rw - overlay overlay rw,lowerdir=/l
"""


@pytest.mark.parametrize(
    ("table", "path", "point"),
    [
        (OWN, "/", "/"),
        (OWN, "/home/u/x", "/"),
        (OWN, "/data", "/data"),
        (OWN, "/data/a/b", "/data"),
        (OWN, "/database/a", "/"),
        (OWN, "/data/inner/a", "/data/inner"),
        (OWN, "/run/lock", ELSEWHERE),
        # A filesystem that is mounted twice is measured at its first mount.
        (OWN, "/srv/x", "/var/lib/containerd"),
        (CONTAINER, "/input/a", "/data"),
        (CONTAINER, "/etc/x", "/var/lib/containerd"),
        (CONTAINER, "/tmp/x", ELSEWHERE),
        (CONTAINER, "/weird/x", ELSEWHERE),
        (CONTAINER, "relative", "/var/lib/containerd"),
    ],
)
def test_a_path_lies_on_a_measured_filesystem(table, path, point):
    own = MountTable(OWN)
    assert (own if table is OWN else MountTable(table)).find_point(path, own) == point


def test_mounts_of_nothing_and_of_themselves_end():
    empty = MountTable(b"")
    assert empty.find_point("/a", empty) == ELSEWHERE
    circle = MountTable(b"1 0 0:1 / / rw - overlay overlay rw,upperdir=/up\n")
    assert MountTable(CONTAINER).find_point("/x", empty) == ELSEWHERE
    assert circle.find_point("/x", MountTable(b"1 0 0:9 / /up rw - overlay o rw,upperdir=/up\n")) == ELSEWHERE


class Tree:
    """Tree of /proc whose processes have links."""

    def __init__(self, root):
        self.root = plant(root, HOST, {"proc/self/mountinfo": OWN.decode()})
        proc = f"{root}/proc"
        table = ProcessTable(NodeClassifier("n1", proc), proc)
        self.table = table
        self.collector = MountsCollector(NodeIdentity("n1"), table, proc)

    def process(self, pid, cwd, written=(), read=(), namespace="", mountinfo=None, **variables):
        plant_process(self.root, pid, **{"JOBMETER_JOB_ID": "j", "JOBMETER_REPLICA": "worker-0", **variables})
        folder = self.root / f"proc/{pid}"
        (folder / "fd").mkdir()
        (folder / "ns").mkdir()
        (folder / "ns/mnt").symlink_to(f"mnt:[{namespace or 1}]")
        (folder / "cwd").symlink_to(cwd)
        for number, path in enumerate((*read, *written)):
            (folder / "fd" / str(number)).symlink_to(path)
        if mountinfo is not None:
            (folder / "mountinfo").write_bytes(mountinfo)
        self.own_namespace()

    def own_namespace(self):
        folder = self.root / "proc/self/ns"
        if not folder.exists():
            folder.mkdir()
            (folder / "mnt").symlink_to("mnt:[1]")

    def look(self):
        self.table.refresh()
        found = self.collector.collect(NOW_MS)
        return {(s.series.metric, s.series.replica, dict(s.series.labels)["mount"]): s.value for s in found}


@pytest.fixture
def tree(tmp_path):
    return Tree(tmp_path)


class TestMounts(CollectorContract):
    @pytest.fixture
    def collector(self, tree):
        tree.process(100, "/data/work", written=["/home/log", "/run/x"])
        tree.table.refresh()
        return tree.collector


def test_working_directories_and_files_count_for_their_replica(tree):
    tree.process(100, "/data/work", written=["/data/a", "/home/log (deleted)", "/dev/null", "socket:[5]", "pipe:[6]"])
    tree.process(101, "/", JOBMETER_REPLICA="worker-1")
    tree.process(102, "/x", namespace="2", mountinfo=CONTAINER, written=["/input/a"], JOBMETER_REPLICA="worker-2")
    # Symbolic links of a file system are writable themselves: each of them is a file that is open for writing.
    assert tree.look() == {
        (WORKED, "worker-0", "/data"): 1,
        (WRITTEN, "worker-0", "/data"): 1,
        (WRITTEN, "worker-0", "/"): 1,
        (WORKED, "worker-1", "/"): 1,
        (WORKED, "worker-2", "/var/lib/containerd"): 1,
        (WRITTEN, "worker-2", "/data"): 1,
    }


def test_what_may_not_be_read_is_absent(tree):
    tree.process(100, "/", namespace="3")
    assert tree.look() == {}, "the mounts of its namespace cannot be read"


def test_replicas_take_turns_where_there_are_too_many_links(tree, monkeypatch):
    monkeypatch.setattr(mounts, "_MOST_LINKS", 6)
    monkeypatch.setattr(mounts, "_MOST_OF_REPLICA", 4)
    for number in range(5):
        tree.process(100 + number, "/", written=["/a"] * 9, JOBMETER_REPLICA=f"worker-{number}")
    seen = [{replica for _, replica, _ in tree.look()} for _ in range(3)]
    assert [len(one) for one in seen] == [2, 2, 2]
    assert set().union(*seen) == {f"worker-{number}" for number in range(5)}
    assert max(tree.look().values()) <= 4


def test_a_real_process_and_what_it_opened(tmp_path):
    """The process opens files for reading, for writing, for both, and for appending."""
    (tmp_path / "read").write_text("x")
    code = "import os\na = open('read'); b = open('written', 'w'); c = open('both', 'w+'); d = open('more', 'a')\n"
    code += "print('ready', flush=True)\ninput()"
    child = subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        family = Family("j")
        family.add(child.pid, Member(owner=Owner("j", "worker-0"), source=MembershipSource.TAGS, rank=0))
        table = ProcessTable(family)
        collector = MountsCollector(NodeIdentity("n1"), table)
        wait_until(table.refresh, "the process")
        found: dict[str, float] = {}
        for sample in collector.collect(NOW_MS):
            found[sample.series.metric] = found.get(sample.series.metric, 0) + sample.value
        assert found == {WORKED: 1, WRITTEN: 3}
    finally:
        child.communicate(b"\n")


def test_a_process_of_another_user_is_left_out_where_its_links_are_hidden(tree):
    tree.process(100, "/data")
    (tree.root / "proc/100/cwd").unlink()
    assert tree.look() == {}
