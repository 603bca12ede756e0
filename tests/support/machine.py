"""Runs a virtual machine that uses cgroup version 2 with all of its controllers.

QEMU emulates it without KVM, with Debian's kernel. The machine sees the files of the host below a tmpfs, so it runs the
same Python and the same source. Both share the folder ``/vmout``. Its address of the host's 127.0.0.1 is 10.0.2.2.
"""

import gzip
import os
import shutil
import subprocess
from pathlib import Path
from typing import BinaryIO

import pytest

ROOT = Path(__file__).parents[2]
HOME = Path(os.environ.get("JOBMETER_MACHINE") or ROOT / ".cache" / "machine")
"""Path pattern of Debian's kernel, which is part of a package ``linux-image-...``."""
QEMU, BUSYBOX = "qemu-system-x86_64", "/bin/busybox"
HOST = "10.0.2.2"
_PACKAGE = "linux-image-amd64"
_MODULES = (
    *("virtio_ring", "virtio", "virtio_pci_modern_dev", "virtio_pci_legacy_dev", "virtio_pci", "virtio_blk"),
    *("netfs", "fscache", "9pnet", "9pnet_virtio", "9p", "overlay", "failover", "net_failover", "virtio_net"),
)
"""Kernel modules in the order of their dependencies."""
_INIT = """\
#!/bin/busybox sh
B=/bin/busybox
$B mkdir -p /dev /proc /tmpfs /host /new
$B mount -t devtmpfs dev /dev
for module in {modules}; do $B insmod /modules/$module.ko; done
$B mount -t tmpfs tmpfs /tmpfs
$B mkdir /tmpfs/upper /tmpfs/work
$B mount -t 9p -o trans=virtio,version=9p2000.L,ro,msize=262144,cache=loose host /host
$B mount -t overlay -o lowerdir=/host,upperdir=/tmpfs/upper,workdir=/tmpfs/work overlay /new
$B mkdir -p /new/vmout
$B mount -t 9p -o trans=virtio,version=9p2000.L,msize=262144 out /new/vmout
$B mount --move /dev /new/dev
exec $B switch_root /new /vmout/init
"""
_START = """\
#!/bin/busybox sh
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root PYTHONDONTWRITEBYTECODE=1
B=/bin/busybox
$B mount -t proc proc /proc
$B mount -t sysfs sysfs /sys
$B mount -t tmpfs tmpfs /run
$B mount -t tmpfs tmpfs /tmp
$B mount -t cgroup2 none /sys/fs/cgroup
$B ip link set lo up
$B ip link set eth0 up
$B ip addr add 10.0.2.15/24 dev eth0
cd {root}
{command} >/vmout/log 2>&1
echo $? >/vmout/status
$B poweroff -f
"""


def needs_machine() -> None:
    """Skip the calling test if a part of the machine is missing."""
    if shutil.which(QEMU) is None:
        pytest.skip(f"{QEMU} is not installed (Debian's packages qemu-system-x86 and seabios)")
    if b"statically linked" not in subprocess.run(["file", "-L", BUSYBOX], capture_output=True, check=False).stdout:
        pytest.skip(f"{BUSYBOX} is not a static one (Debian's package busybox-static)")
    if _kernel() is None:
        pytest.skip("there is no kernel for the virtual machine: make test-clusters PARTS=cgroup2")


def fetch_kernel() -> None:
    """Download Debian's kernel (70 MB) if it is missing and apt-get is available."""
    if _kernel() is not None or shutil.which("apt-get") is None:
        return
    HOME.mkdir(parents=True, exist_ok=True)
    depends = subprocess.run(["apt-cache", "depends", _PACKAGE], capture_output=True, text=True, check=False).stdout
    names = [word for word in depends.split() if word.startswith("linux-image-")]
    for command in (["apt-get", "download", names[-1]] if names else ["false"],):
        subprocess.run(command, cwd=HOME, check=False, capture_output=True)
    for package in HOME.glob("*.deb"):
        subprocess.run(["dpkg-deb", "-x", package, HOME], check=False)
        package.unlink()


def _kernel() -> Path | None:
    return next(iter(sorted(HOME.glob("boot/vmlinuz-*"))), None)


class Machine:
    """Virtual machine that runs one command. Its ``/vmout`` is ``share``, and ``/dev/vda`` a disk of ``disk`` bytes."""

    def __init__(self, folder: Path, disk: int) -> None:
        self.share = folder / "share"
        self.share.mkdir(parents=True)
        self._folder = folder
        self._disk = folder / "disk"
        with self._disk.open("wb") as file:
            file.truncate(disk)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *command: str) -> None:
        """Boot the machine with that command. The machine powers off after it."""
        kernel = _kernel()
        assert kernel is not None
        self._build(kernel.name.removeprefix("vmlinuz-"))
        start = self.share / "init"
        start.write_text(_START.format(root=ROOT, command=" ".join(command)))
        start.chmod(0o755)
        with (self._folder / "qemu").open("wb") as errors:
            self._process = self._booted(kernel, errors)

    def _booted(self, kernel: Path, errors: BinaryIO) -> "subprocess.Popen[bytes]":
        shared = "security_model=none"
        return subprocess.Popen(
            [
                *(QEMU, "-accel", "tcg,thread=multi", "-cpu", "max", "-m", "1024", "-smp", "2", "-M", "q35"),
                *("-nodefaults", "-no-reboot", "-display", "none", "-serial", f"file:{self._folder / 'console'}"),
                *("-kernel", str(kernel), "-initrd", str(self._folder / "initrd.gz")),
                *("-append", "console=ttyS0 quiet panic=-1 psi=1 mitigations=off"),
                *("-virtfs", f"local,path=/,mount_tag=host,{shared},readonly=on,multidevs=remap"),
                *("-virtfs", f"local,path={self.share},mount_tag=out,{shared}"),
                *("-drive", f"file={self._disk},format=raw,if=virtio", "-nic", "user,model=virtio-net-pci"),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            start_new_session=True,
        )

    def _build(self, version: str) -> None:
        root = self._folder / "initrd"
        (root / "bin").mkdir(parents=True)
        (root / "modules").mkdir()
        shutil.copy(BUSYBOX, root / "bin" / "busybox")
        for name in _MODULES:
            (found,) = HOME.glob(f"lib/modules/{version}/kernel/**/{name}.ko")
            shutil.copy(found, root / "modules")
        (root / "init").write_text(_INIT.format(modules=" ".join(_MODULES)))
        (root / "init").chmod(0o755)
        names = "\n".join(sorted(str(path.relative_to(root)) for path in root.rglob("*")))
        packed = subprocess.run(
            [BUSYBOX, "cpio", "-o", "-H", "newc"], cwd=root, input=names.encode(), capture_output=True, check=True
        ).stdout
        (self._folder / "initrd.gz").write_bytes(gzip.compress(packed, 1))

    def said(self, name: str) -> str:
        """Return the current contents of a file in ``/vmout``; empty if it does not exist."""
        path = self.share / name
        return path.read_text(errors="replace") if path.exists() else ""

    def let(self, name: str) -> None:
        """Create an empty file in ``/vmout`` that releases a waiting command of the machine."""
        (self.share / name).touch()

    @property
    def runs(self) -> bool:
        """True while the machine is on."""
        return self._process is not None and self._process.poll() is None

    def stop(self) -> None:
        """Kill the machine."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(30)
