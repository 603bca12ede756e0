"""Fake of NVIDIA's NVML library: the compiled ``library.c``, and the file that controls it.

The real ``nvidia-ml-py`` loads it like the driver's library, in this process or in another one (``environment``).
"""

import ctypes
import hashlib
import mmap
import os
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntEnum
from pathlib import Path
from typing import Any

from jobmeter.collect.accelerators.nvidia.loader import LIBRARY
from jobmeter.collect.accelerators.nvidia.readings import ALL_LINKS
from tests.programs import find
from tests.support.needs import needs
from tests.support.waiting import wait_until

SOURCE = Path(__file__).parent / "library.c"
VERSION = "570.86.15"
_MADE = Path(__file__).parents[3] / ".cache" / "fake-nvml"
_FLAGS = ("-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", "-shared", "-fPIC", "-fvisibility=hidden")
_DEVICES, _PROCESSES, _FIELDS, _METRICS, _INSTANCES, _EVENTS = 16, 16, 128, 128, 8, 64
ACCOUNTED = 32
"""Number of processes that the accounting of a device remembers."""
NO_INSTANCE = 0xFFFFFFFF
XID_EVENT = 0x8


class Call(IntEnum):
    """Calls of a device. ``EVERY`` stands for all of them."""

    EVERY = 0
    HANDLE = 1
    UUID = 2
    MINOR = 3
    NAME = 4
    UTILIZATION = 5
    MEMORY = 6
    MEMORY_V2 = 7
    POWER = 8
    POWER_LIMIT = 9
    ENERGY = 10
    TEMPERATURE = 11
    FAN = 12
    CLOCK = 13
    MAX_CLOCK = 14
    P_STATE = 15
    ENCODER = 16
    DECODER = 17
    ECC = 18
    REMAPPED = 19
    REPLAYS = 20
    FIELD_VALUES = 21
    GPM_SUPPORT = 22
    GPM_SAMPLE = 23
    PROCESS_LIST = 24
    MPS_LIST = 25
    PROCESS_UTILIZATION = 26
    PROCESS_LIST_V2 = 27
    MPS_LIST_V2 = 28
    LINK = 29
    MAX_LINK = 30
    PCI = 31
    SERIAL = 32
    MIG = 33
    SAMPLED = 34
    MARGIN = 35
    SRAM = 36
    FABRIC = 37
    LINK_STATE = 38
    EVENT_TYPES = 39
    REGISTER = 40
    SPARE_ROWS = 41
    ACCOUNTING_MODE = 42
    ACCOUNTING = 43


class LibraryCall(IntEnum):
    """Calls of the library."""

    INIT = 0
    SHUTDOWN = 1
    COUNT = 2
    GPM_METRICS = 3
    EVENT_SET = 4
    EVENT_WAIT = 5


class _Process(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_uint32) for name in ("pid", "mps", "busy", "share")),
        *((name, ctypes.c_uint64) for name in ("memory", "stamp")),
        *((name, ctypes.c_uint32) for name in ("instance", "pad")),
    )


class _Accounted(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_uint32) for name in ("pid", "running", "busy", "pad")),
        *((name, ctypes.c_uint64) for name in ("time", "start")),
    )


class _Instance(ctypes.Structure):
    _fields_ = (
        ("uuid", ctypes.c_char * 96),
        ("name", ctypes.c_char * 96),
        *((name, ctypes.c_uint32) for name in ("there", "instance", "place", "slices")),
        *((name, ctypes.c_uint64) for name in ("used", "total")),
        ("share", ctypes.c_double),
    )


class _Value(ctypes.Union):
    _fields_ = (("d", ctypes.c_double), ("ui", ctypes.c_uint32), ("ull", ctypes.c_uint64))


class _Field(ctypes.Structure):
    _fields_ = (
        ("id", ctypes.c_uint32),
        ("scope", ctypes.c_uint32),
        ("type", ctypes.c_int32),
        ("code", ctypes.c_int32),
        ("value", _Value),
    )


class _Metric(ctypes.Structure):
    _fields_ = (("value", ctypes.c_double), ("code", ctypes.c_int32), ("pad", ctypes.c_int32))


class _Device(ctypes.Structure):
    _fields_ = (
        ("uuid", ctypes.c_char * 96),
        ("pci", ctypes.c_char * 32),
        ("name", ctypes.c_char * 96),
        ("serial", ctypes.c_char * 32),
        ("codes", ctypes.c_int32 * len(Call)),
        ("blocks", ctypes.c_uint32 * len(Call)),
        ("counts", ctypes.c_uint32 * len(Call)),
        ("minor", ctypes.c_uint32),
        ("gpm_supported", ctypes.c_uint32),
        ("utilization", ctypes.c_uint32 * 2),
        *((name, ctypes.c_uint32) for name in ("power", "power_limit", "temperature", "fan")),
        ("clock", ctypes.c_uint32 * 2),
        *((name, ctypes.c_uint32) for name in ("max_clock", "p_state", "encoder", "decoder")),
        ("remapped", ctypes.c_uint32 * 4),
        *((name, ctypes.c_uint32) for name in ("replays", "processes", "fields", "pad")),
        ("link", ctypes.c_uint32 * 2),
        ("max_link", ctypes.c_uint32 * 2),
        *((name, ctypes.c_uint64) for name in ("used", "total", "reserved", "energy", "joules")),
        ("ecc", ctypes.c_uint64 * 2),
        *((name, ctypes.c_uint32) for name in ("mig", "margin")),
        ("sram", ctypes.c_uint32 * 4),
        *((name, ctypes.c_uint32) for name in ("fabric", "links_down")),
        ("sampled", (ctypes.c_uint32 * 8) * 2),
        *((name, ctypes.c_uint32) for name in ("sampled_at", "event_types")),
        ("spare", ctypes.c_uint32 * 5),
        ("gpm_end", ctypes.c_uint32),
        *((name, ctypes.c_uint32) for name in ("accounting", "accounted_ever")),
        ("accounted", _Accounted * ACCOUNTED),
        ("instance", _Instance * _INSTANCES),
        ("process", _Process * _PROCESSES),
        ("field", _Field * _FIELDS),
        ("metric", _Metric * _METRICS),
    )


class _Event(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_uint64) for name in ("type", "data")),
        *((name, ctypes.c_uint32) for name in ("index", "instance", "place", "pad")),
    )


class _Control(ctypes.Structure):
    _fields_ = (
        ("driver", ctypes.c_char * 32),
        ("codes", ctypes.c_int32 * len(LibraryCall)),
        ("blocks", ctypes.c_uint32 * len(LibraryCall)),
        ("counts", ctypes.c_uint32 * len(LibraryCall)),
        *((name, ctypes.c_uint32) for name in ("count", "idle_code", "misuse", "samples")),
        *((name, ctypes.c_uint32) for name in ("sets", "waiting", "happened", "read", "longest", "asked")),
        ("event", _Event * _EVENTS),
        ("device", _Device * _DEVICES),
    )


def _compiled(version: str) -> bytes:
    """Return the library of that version, compiled once for all tests. Skip the test without a compiler."""
    needs("cc")
    flags = [*_FLAGS, f'-DFAKE_VERSION="{version}"', f"-Wl,-soname,{LIBRARY}"]
    made = _MADE / hashlib.sha256(SOURCE.read_bytes() + " ".join(flags).encode()).hexdigest()
    if not made.exists():
        _MADE.mkdir(parents=True, exist_ok=True)
        partial = made.with_suffix(f".{os.getpid()}")
        subprocess.run([str(find("cc")), *flags, "-o", str(partial), str(SOURCE)], check=True)
        partial.replace(made)
    return made.read_bytes()


class FakeDevice:
    """GPU in NVML's units. Its initial values are typical of a busy H200."""

    def __init__(self, data: _Device, index: int) -> None:
        self._data = data
        self.index = index
        self.set(
            uuid=f"GPU-{index:08x}-1d1c-d9ed-fe37-18b8466a78ad",
            pci=f"00000000:{index + 0x1B:02X}:00.0",
            name="NVIDIA H200",
            serial=f"165{index:010d}",
            minor=index,
            gpm_supported=1,
            utilization=(83, 41),
            used=60 * 2**30,
            total=139 * 2**30,
            reserved=2**29,
            power=431_250,
            power_limit=700_000,
            energy=5_000_123,
            joules=500_000,
            temperature=61,
            fan=30,
            clock=(1980, 3201),
            max_clock=1980,
            ecc=(2, 0),
            remapped=(1, 0, 0, 0),
            replays=3,
            margin=26,
            sram=(1, 2, 3, 0),
            spare=(382, 1, 1, 0, 0),
            fabric=3,
            link=(5, 16),
            max_link=(5, 16),
        )
        self.set_fields(
            {(74, 0): 2_000_000_000, (82, 0): 74, (91, 0): 2, (138, ALL_LINKS): 1024, (139, ALL_LINKS): 2048}
        )
        self.set_profile({1: 90.0, 2: 71.5, 3: 22.0, 5: 44.0, 10: 38.5, 11: 0.0, 12: 3.0, 13: 1.0})

    @property
    def uuid(self) -> str:
        return bytes(self._data.uuid).decode()

    def set(self, **values: Any) -> None:
        """Set values by the member names of ``struct device``."""
        for name, value in values.items():
            if isinstance(value, tuple):
                for at, one in enumerate(value):
                    getattr(self._data, name)[at] = one
            else:
                setattr(self._data, name, value.encode() if isinstance(value, str) else value)

    def set_fields(self, values: Mapping[tuple[int, int], float], code: int = 0) -> None:
        """Set the fields of the device: whole numbers as unsigned long long, others as double."""
        for at, ((number, scope), value) in enumerate(values.items()):
            one = self._data.field[at]
            one.id, one.scope, one.code = number, scope, code
            one.type = 3 if isinstance(value, int) else 0
            setattr(one.value, "ull" if isinstance(value, int) else "d", value)
        self._data.fields = len(values)

    def set_samples(self, at_us: int, kernels: Sequence[int], memory: Sequence[int]) -> None:
        """Set the newest utilization samples in percent, 100 ms apart from that time (µs) on."""
        for place, values in enumerate((kernels, memory)):
            for at in range(8):
                self._data.sampled[place][at] = values[at] if at < len(values) else 101
        self._data.sampled_at = at_us

    def set_profile(self, values: Mapping[int, float]) -> None:
        """Set the GPM metrics of the device, in percent."""
        for number in range(_METRICS):
            self._data.metric[number].code = 0 if number in values else 3
            self._data.metric[number].value = values.get(number, 0.0)

    def split(self, *instances: tuple[int, int, int]) -> None:
        """Enable MIG with instances (GPU instance, place, slices of seven).

        Their activity is their share of the slices.
        """
        self._data.mig = 1
        for at in range(_INSTANCES):
            one = self._data.instance[at]
            one.there = at < len(instances)
            if one.there:
                one.instance, one.place, one.slices = instances[at]
                one.uuid = f"MIG-{self.index}{one.instance}{one.place}00000-aaaa-bbbb-cccc-0123456789ab".encode()
                one.name = f"NVIDIA H200 MIG {one.slices}g".encode()
                one.used, one.total, one.share = 2**30 * one.slices, 2**34 * one.slices, one.slices / 7

    def hold(self, *memory: tuple[int, int]) -> None:
        """Set the memory of the instances of ``split`` in order: used and total bytes."""
        for one, (used, total) in zip(self._data.instance, memory, strict=False):
            one.used, one.total = used, total

    def run_in(self, *places: int) -> None:
        """Assign the processes of ``run``, in order, to places of ``split``."""
        for at, place in enumerate(places):
            self._data.process[at].instance = place + 1

    def run(self, *processes: tuple[int, int], mps: Iterable[tuple[int, int]] = ()) -> None:
        """Set the processes with a context, as (pid, bytes). They are idle until ``work``."""
        both = [(*one, 0) for one in processes] + [(*one, 1) for one in mps]
        for at, (pid, memory, shared) in enumerate(both):
            one = self._data.process[at]
            one.pid, one.memory, one.mps, one.busy = pid, memory, shared, 0
        self._data.processes = len(both)

    def work(self, **shares: int) -> None:
        """Set the processes that worked since the last call.

        ``p7=80`` means process 7 at 80 percent; others were idle.
        """
        for at in range(self._data.processes):
            one = self._data.process[at]
            one.busy = f"p{one.pid}" in shares
            if one.busy:
                one.share, one.stamp = shares[f"p{one.pid}"], time.time_ns() // 1_000

    def account(self, *, on: bool) -> None:
        """Switch the accounting of processes. Switching it off makes the driver forget all processes."""
        self._data.accounting = on
        self._data.accounted_ever = self._data.accounted_ever if on else 0

    def begin(self, pid: int, began: float | None = None) -> None:
        """Record that a process opened the device, at a time in seconds since the epoch, by default now."""
        if self._data.accounting:
            one = self._data.accounted[self._data.accounted_ever % ACCOUNTED]
            one.pid, one.running, one.start = pid, 1, int((time.time() if began is None else began) * 1e6)
            self._data.accounted_ever += 1

    def end(self, pid: int, seconds: float, busy: int) -> None:
        """Record the end of a process that had the device open for some seconds, busy for a share in percent."""
        for one in self._data.accounted:
            if one.pid == pid and one.running:
                one.running, one.time, one.busy = 0, int(seconds * 1_000), busy

    def fail(self, code: int, *calls: Call) -> None:
        """Make calls, by default all of them, return that code. Code 0 makes them succeed."""
        for call in calls or (Call.EVERY,):
            self._data.codes[call] = code

    def answer(self) -> None:
        """Make every call succeed."""
        self.fail(0, *Call)
        self.block(0, *Call)

    def block(self, blocks: int, *calls: Call) -> None:
        """Block calls while ``blocks`` is 1."""
        for call in calls or (Call.EVERY,):
            self._data.blocks[call] = blocks

    def calls(self, call: Call) -> int:
        """Return the number of calls of that kind."""
        return int(self._data.counts[call])


class FakeNvml:
    """Driver of a machine: its library in a folder, and the behaviour of the library and of each device.

    ``install`` adds the library to the folder. A process finds it by the variables of ``environment``, even if they are
    set after its start. ``close`` lets every call return, and closes its readers.
    """

    def __init__(self, folder: Path, devices: int = 1, version: str = VERSION) -> None:
        self.folder = folder / "lib"
        self.file = folder / "nvml-control"
        self.file.write_bytes(bytes(ctypes.sizeof(_Control)))
        with self.file.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)
        self._control = _Control.from_buffer(self._map)
        self._control.idle_code = 6
        self._control.longest = 20
        self.devices = [FakeDevice(self._control.device[index], index) for index in range(_DEVICES)][:devices]
        self.readers: list[Callable[[], object]] = []
        """Functions that close the readers of the library at the end of a test."""
        self.set_count(devices)
        self.load_driver(version)

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables by which another process finds the library."""
        return {"FAKE_NVML": str(self.file), "LD_LIBRARY_PATH": str(self.folder)}

    def install(self, version: str = VERSION) -> None:
        """Install a version of the library as a driver package does: a file, and the link to it."""
        self.folder.mkdir(exist_ok=True)
        file = self.folder / f"libnvidia-ml.so.{version}"
        file.with_suffix(".part").write_bytes(_compiled(version))
        file.with_suffix(".part").replace(file)
        link = self.folder / ".link"
        link.symlink_to(file.name)
        link.replace(self.folder / LIBRARY)

    def load_driver(self, version: str) -> None:
        """Load the kernel driver of a version; empty unloads it."""
        self._control.driver = version.encode()

    def set_count(self, devices: int) -> None:
        """Set the number of devices."""
        self._control.count = devices

    def fail(self, code: int, call: LibraryCall = LibraryCall.INIT) -> None:
        """Make a call of the library return that code."""
        self._control.codes[call] = code

    def block(self, blocks: int, call: LibraryCall = LibraryCall.INIT) -> None:
        """Block a call of the library while ``blocks`` is 1."""
        self._control.blocks[call] = blocks

    def happen(self, index: int, data: int, kind: int = XID_EVENT, instance: tuple[int, int] | None = None) -> None:
        """Raise an event of a GPU. ``kind`` is one of the GPU's ``event_types``."""
        one = self._control.event[self._control.happened % _EVENTS]
        one.index, one.type, one.data = index, kind, data
        one.instance, one.place = instance or (NO_INSTANCE, NO_INSTANCE)
        self._control.happened += 1

    @property
    def unread(self) -> int:
        """Number of events that nvmlEventSetWait has not yet returned."""
        return int(self._control.happened - self._control.read)

    @property
    def waiting(self) -> bool:
        """True while a call of nvmlEventSetWait waits for an event."""
        return bool(self._control.waiting)

    @property
    def wait_ms(self) -> int:
        """Timeout (ms) of the last call of nvmlEventSetWait. This library waits at most 20 ms."""
        return int(self._control.asked)

    @property
    def sets(self) -> int:
        """Number of unfreed event sets."""
        return int(self._control.sets)

    def idle_code(self, code: int) -> None:
        """Set the return code of utilization queries without a busy process: 6, or 0 as with some drivers."""
        self._control.idle_code = code

    def calls(self, call: LibraryCall) -> int:
        """Return the number of calls of that kind."""
        return int(self._control.counts[call])

    @property
    def misuse(self) -> int:
        """Number of calls with a dead handle, a freed GPM sample, or two GPM samples that do not belong together."""
        return int(self._control.misuse)

    @property
    def samples(self) -> int:
        """Number of unfreed GPM samples."""
        return int(self._control.samples)

    def unblock(self) -> None:
        """Let every call return."""
        for call in LibraryCall:
            self.block(0, call)
        for device in self.devices:
            device.block(0, *Call)

    def close(self) -> None:
        """Let every call return, and close the readers. A library that stays loaded would be found by the next test."""
        self.unblock()
        wait_until(lambda: all(reader() is not False for reader in self.readers), "the return of every call")
