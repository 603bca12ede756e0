"""Generated jobs that lack a resource or waste one, and healthy jobs that resemble them."""

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from benchmarks.faults.build import GIB, START, Made, batch, training
from benchmarks.faults.changes import Fault, whole
from jobmeter.model.batch import Float64s
from jobmeter.model.time import MINUTE, SECOND

_SPEED = 25e9 / 8


def _set(made: Made, key: tuple[str, str, str], mean: float, spread: float) -> None:
    """Set a series of a node to another level from the onset of the fault on."""
    first = made.begin(made.shape.onset)
    value = made.noise(mean, spread)
    before = made.nodes.get(key)
    value[:first] = 0.0 if before is None else before[:first]
    made.nodes[key] = value


def _some_node(made: Made) -> str:
    return f"node-worker-{made.random.integers(made.replicas)}"


@whole(batch)
def _memory_overrequest(made: Made) -> None:
    limit = float(made.random.uniform(5, 40)) * 20 * GIB
    for name in made.names:
        made.series["memory.limit", name, ""] = np.full(len(made.time), limit)
        made.series["memory.utilization", name, ""] = made.series["memory.usage", name, ""] / limit
        made.nodes["node.memory.total", f"node-{name}", ""] = np.full(len(made.time), 1.2 * limit)


@whole(batch)
def _memory_peak(made: Made) -> None:
    """Let replicas need their memory only for moments, as for a checkpoint or at their start."""
    for name in made.names:
        made.series["memory.limit", name, ""] = np.full(len(made.time), 128 * GIB)
        made.series["memory.utilization", name, ""] = made.series["memory.usage", name, ""] / (128 * GIB)
        made.series["memory.peak", name, ""] = np.full(len(made.time), float(made.random.uniform(40, 100)) * GIB)


@whole(batch)
def _whole_node(made: Made) -> None:
    """Make replicas without a memory limit of their own, which may use the whole node."""
    for name in made.names:
        for key in (("memory.limit", name, ""), ("node.memory.total", f"node-{name}", "")):
            (made.series if key[0] == "memory.limit" else made.nodes)[key] = np.full(len(made.time), 1024 * GIB)
        made.series["memory.utilization", name, ""] = made.series["memory.usage", name, ""] / (1024 * GIB)


_LOAD = ("gpu.utilization", "gpu.sm.active", "gpu.tensor.active")


@whole(training)
def _uneven_work(made: Made) -> None:
    """Give a quarter to two thirds of the devices much less work."""
    first = made.begin(made.shape.onset)
    members = [made.gpus[at] for at in made.random.permutation(len(made.gpus))]
    share, factor = float(made.random.uniform(0.25, 0.66)), float(made.random.uniform(0.3, 0.65))
    for member in members[: max(2, round(share * len(members)))]:
        for metric in _LOAD:
            if (metric, *member) in made.series:
                made.series[(metric, *member)][first:] *= factor


@whole(training)
def _slightly_uneven(made: Made) -> None:
    for member in made.gpus:
        factor = float(made.random.uniform(0.92, 1.0))
        for metric in _LOAD:
            if (metric, *member) in made.series:
                made.series[(metric, *member)] *= factor


@whole(training)
def _in_turns(made: Made) -> None:
    """Give devices less work in turns. In the end all have done the same."""
    period = int(made.random.integers(15, 30)) * MINUTE
    for number, member in enumerate(made.gpus):
        less = ((made.time - START) // period + number) % 2 == 0
        for metric in _LOAD:
            if (metric, *member) in made.series:
                made.series[(metric, *member)][less] *= 0.7


def _wave(made: Made, first: int = 0) -> Float64s:
    """Return the share of its work that a device does at each sample: in turn all and almost none of it."""
    period = float(made.random.uniform(4, 7)) * MINUTE
    waits = float(made.random.uniform(0.3, 0.6))
    moved = (made.time - START + made.random.uniform(0, period)) % period
    wave = np.where(moved < waits * period, 0.02, 1.0)
    wave[:first] = 1.0
    return wave


def _apply(made: Made, wave: Float64s, metrics: Sequence[str], high: float) -> None:
    """Multiply the load of devices by a wave, and ``metrics`` of replicas by ``high`` while the wave is low."""
    for (metric, name, device), value in made.series.items():
        if metric in {*_LOAD, "gpu.power"}:
            made.series[metric, name, device] = value * np.maximum(wave, 0.2 if metric == "gpu.power" else 0.0)
        elif metric in metrics:
            made.series[metric, name, device] = value * np.where(wave < 0.5, high, 1.0)


@whole(training)
def _starved(made: Made) -> None:
    first = made.begin(made.shape.onset / 2)
    load = str(made.random.choice(["disk.read", "network.receive", "cpu.usage"]))
    _apply(made, _wave(made, first), (load,), 2.2 if load == "cpu.usage" else float(made.random.uniform(3, 50)))


@whole(training)
def _checkpoints(made: Made) -> None:
    """Let devices wait for 1 to 3 minutes of about each half hour, while the job writes a checkpoint."""
    period = float(made.random.uniform(20, 40)) * MINUTE
    waits = (made.time - START + made.random.uniform(0, period)) % period < made.random.uniform(1, 3) * MINUTE
    _apply(made, np.where(waits, 0.02, 1.0), ("disk.write",), 500.0)
    for name in made.names:
        made.series["disk.read", name, ""][_waiting(made)] *= 0.05


def _waiting(made: Made) -> np.ndarray:
    waiting: np.ndarray = made.series["gpu.utilization", made.names[0], "gpu0"] < 0.5
    return waiting


@whole(training)
def _prefetches(made: Made) -> None:
    """Read in bursts, while the devices never wait for data."""
    period = float(made.random.uniform(4, 12)) * MINUTE
    burst = (made.time - START) % period < 0.4 * period
    for name in made.names:
        made.series["disk.read", name, ""] *= np.where(burst, 20.0, 0.1)


@whole(training)
def _swaps(made: Made) -> None:
    node = _some_node(made)
    if made.random.random() < 0.7:
        _set(made, ("node.swap.out", node, ""), float(made.random.uniform(3e6, 2e8)), 1e6)
        _set(made, ("node.memory.major.faults", node, ""), 3000.0, 500.0)
    else:  # the node has no swap space
        del made.nodes["node.swap.out", node, ""]
        _set(made, ("node.memory.major.faults", node, ""), float(made.random.uniform(2e3, 2e4)), 300.0)
        _set(made, ("node.pressure.memory", node, ""), float(made.random.uniform(0.25, 0.9)), 0.03)


@whole(training)
def _maps_files(made: Made) -> None:
    """Map files into memory, on nodes that once swapped out memory that no process uses."""
    for name in made.names:
        made.nodes["node.memory.major.faults", f"node-{name}", ""] = made.noise(5000, 1000)
        made.nodes["node.pressure.memory", f"node-{name}", ""] = made.noise(0.01, 0.01)
        first = made.at(float(made.random.uniform(0.2, 0.8)))
        minute = (made.time >= made.time[first]) & (made.time < made.time[first] + 90 * SECOND)
        made.nodes["node.swap.out", f"node-{name}", ""][minute] = 1e8


@whole(training)
def _loses_packets(made: Made) -> None:
    node = _some_node(made)
    kind = str(made.random.choice(["errors", "dropped", "again"]))
    if kind == "again":
        _set(made, ("node.tcp.retransmitted", node, ""), 4e4 * float(made.random.uniform(0.035, 0.3)), 200.0)
    else:
        way = str(made.random.choice(["receive", "transmit"]))
        level = 4e4 * float(made.random.uniform(0.02, 0.3))
        _set(made, (f"node.network.{kind}", node, f"eth0 {way}"), level, 0.05 * level)


@whole(training)
def _loses_few_packets(made: Made) -> None:
    """Lose a small share of packets on the busy link, and a large share on an unused link with few packets."""
    for name in made.names:
        node = f"node-{name}"
        made.nodes["node.network.errors", node, "eth0 receive"] = made.noise(40, 10)
        made.nodes["node.tcp.retransmitted", node, ""] = made.noise(200, 50)
        made.nodes["node.network.packets", node, "eth1 receive"] = made.noise(10, 2)
        made.nodes["node.network.dropped", node, "eth1 receive"] = made.noise(5, 1)


def _profiled(made: Made, level: float) -> None:
    """Give the devices of a job a series of the activity of their multiprocessors."""
    made.put("gpu.sm.active", lambda: np.minimum(made.noise(level, 0.03), 1.0))


@whole(training)
def _full_link(made: Made) -> None:
    """Fill the network of all nodes, so that devices wait in collectives: utilized, with idle multiprocessors."""
    _slowed(made, made.begin(made.shape.onset))
    kind, link = ("network", "eth0") if made.random.random() < 0.5 else ("rdma", "mlx5_0:1")
    way = str(made.random.choice(["receive", "transmit"]))
    used = float(made.random.uniform(0.85, 0.98))
    for name in made.names:
        node = f"node-{name}"
        made.nodes[f"node.{kind}.speed", node, link] = np.full(len(made.time), _SPEED)
        _set(made, (f"node.{kind}.{way}", node, link), used * _SPEED, 0.02 * _SPEED)


@whole(batch)
def _full_link_without_devices(made: Made) -> None:
    first = made.begin(made.shape.onset)
    used = float(made.random.uniform(0.85, 0.98))
    for name in made.names:
        _set(made, ("node.network.receive", f"node-{name}", "eth0"), used * _SPEED, 0.02 * _SPEED)
        for metric in ("cpu.usage", "cpu.utilization"):
            made.series[metric, name, ""][first:] *= 0.3


def _slowed(made: Made, first: int) -> None:
    """Let devices wait in collectives from the sample ``first`` on: utilized, with idle multiprocessors."""
    usual = made.shape.sm
    _profiled(made, usual)
    low = float(made.random.uniform(0.15, 0.4))
    for key, value in made.series.items():
        if key[0] in {"gpu.sm.active", "gpu.tensor.active"}:
            value[first:] *= low / usual


@whole(training)
def _full_lanes(made: Made) -> None:
    """Use most of the bandwidth of each device's PCIe link. The link's generation and width are random."""
    first = made.begin(made.shape.onset)
    _slowed(made, first)
    generation, lanes = int(made.random.integers(3, 6)), int(made.random.choice([4, 8, 16]))
    speed = 2.0**generation * 1e9 / 8 * lanes * 128 / 130
    used = float(made.random.uniform(0.78, 0.95)) * speed
    way = str(made.random.choice(["receive", "transmit"]))
    for member in made.gpus:
        for name, value in (("generation", float(generation)), ("width", float(lanes))):
            for metric in (f"gpu.pcie.{name}", f"gpu.pcie.{name}.limit"):
                made.series[(metric, *member)] = np.full(len(made.time), value)
        traffic = made.noise(0.1 * speed, 0.02 * speed)
        traffic[first:] = made.noise(used, 0.02 * speed)[first:]
        made.series[(f"gpu.pcie.{way}", *member)] = traffic


@whole(training)
def _raised_nvlink(made: Made) -> None:
    """Let devices exchange more data over NVLink and compute less, from about 15 minutes before the job's end on.

    The last half hour therefore shows the levels before and after. NVLink reports no speed to compare them with.
    """
    first = made.begin(1 - float(made.random.uniform(14, 16)) * MINUTE / made.length)
    _slowed(made, first)
    usual = float(made.random.uniform(1e10, 1e11))
    raised = usual * float(made.random.uniform(2, 4))
    for member in made.gpus:
        for way in ("receive", "transmit"):
            traffic = made.noise(usual, 0.06 * usual)
            traffic[first:] = made.noise(raised, 0.06 * raised)[first:]
            made.series[(f"gpu.nvlink.{way}", *member)] = traffic


@whole(training)
def _busy_device_links(made: Made) -> None:
    """Let devices compute while they exchange data over PCIe and NVLink."""
    _profiled(made, made.shape.sm)
    for metric, level in (("pcie.receive", 5.5e10), ("nvlink.receive", 4e11), ("nvlink.transmit", 4e11)):
        made.put(f"gpu.{metric}", partial(made.noise, level, 0.02 * level))


@whole(training)
def _more_over_nvlink(made: Made) -> None:
    """Let devices exchange more data in the second half of the job, and compute as much as before."""
    _profiled(made, made.shape.sm)
    more = np.where(np.arange(len(made.time)) < made.at(0.5), 1.0, 2.5)
    for way in ("receive", "transmit"):
        made.put(f"gpu.nvlink.{way}", lambda: made.noise(6e10, 4e9) * more)


@whole(training)
def _busy_link(made: Made) -> None:
    """Fill a link while the devices compute, as with communication that overlaps computation."""
    _profiled(made, made.shape.sm)
    for name in made.names:
        made.nodes["node.network.transmit", f"node-{name}", "eth0"] = made.noise(0.9 * _SPEED, 0.02 * _SPEED)


@whole(batch)
def _hog(made: Made) -> None:
    node = _some_node(made)
    name = node.removeprefix("node-")
    first = made.begin(made.shape.onset)
    count = float(made.nodes["node.cpu.count", node, ""][0])
    limit = float(made.series["cpu.limit", name, ""][0])
    left = float(made.random.uniform(0.2, 0.6)) * limit
    mine = made.series["cpu.usage", name, ""]
    mine[first:] = np.minimum(mine[first:], made.noise(left, 0.05 * left)[first:])
    made.series["cpu.utilization", name, ""] = mine / limit
    made.series["pressure.cpu", name, ""][first:] = made.noise(float(made.random.uniform(0.25, 0.8)), 0.04)[first:]
    user = made.nodes["node.cpu.time", node, "user"]
    user[first:] = np.minimum(made.noise(0.985 * count, 0.01 * count), count)[first:]
    made.nodes["node.cpu.time", node, "idle"] = np.maximum(count - user, 0.0)


@whole(batch)
def _beside_others(made: Made) -> None:
    """Fill nodes with other jobs. Every job gets the CPU that it requested."""
    for name in made.names:
        node = f"node-{name}"
        count = float(made.nodes["node.cpu.count", node, ""][0])
        limit = float(made.series["cpu.limit", name, ""][0])
        mine = made.series["cpu.usage", name, ""]
        made.nodes["node.cpu.time", node, "user"] = np.minimum(mine + made.noise(count - limit, 0.02 * limit), count)
        made.series["pressure.cpu", name, ""] = made.noise(0.15, 0.03)


@whole(batch)
def _nobody_waits(made: Made) -> None:
    """Let other processes use the CPU that the job leaves them."""
    for name in made.names:
        count = float(made.nodes["node.cpu.count", f"node-{name}", ""][0])
        made.nodes["node.cpu.time", f"node-{name}", "user"] = np.minimum(made.noise(0.97 * count, 0.01 * count), count)


NO_DEVICE = ("NET/IB : No device found.", "NET/IB : No IP interface found.")
SOCKET_LINES = (
    ("NET/Socket : Using [0]eth0:10.0.0.{n}<0>", "Ring 00 : 1[0] -> 2[0] [send] via NET/Socket/0"),
    ("NET/Socket : Using [0]eth0:10.0.0.{n}<0>", "Using network Socket"),
    ("NET/Socket : Using [0]eth0:10.0.0.{n}<0>", "Using non-device net plugin version 0", "Using network Socket"),
    (
        "Failed to initialize NET plugin IB",
        "NET/Socket : Using [0]eth0:10.0.0.{n}<0>",
        "Initialized NET plugin Socket",
        "Assigned NET plugin Socket to comm",
        "Using network Socket",
    ),
)
"""Lines of NCCL that uses sockets: versions 2.4 to 2.7, 2.8 to 2.18, 2.19 to 2.26, and from 2.27 on.

https://github.com/NVIDIA/nccl/issues has examples of them.
"""
RDMA_LINES = (
    ("NET/IB : Using [0]mlx5_0:1/IB ; OOB ib0:10.0.0.{n}<0>", "NET/Socket : Using [0]eth0:10.0.0.{n}<0>"),
    ("NET/IB : Using [0]mlx5_0:1/RoCE [RO]; OOB eth0:10.0.0.{n}<0>", "Using network IB"),
    (
        "P2P plugin IBext_v8",
        "NET/IB : Using [0]mlx5_0:1/IB/SHARP [RO]; OOB eth0:10.0.0.{n}<0>",
        "Using network IBext_v8",
    ),
    ("Initialized NET plugin IB", "Assigned NET plugin IB to comm", "Using network IB"),
    ("NET/IB : No device found.", "Initialized NET plugin Libfabric", "Using network AWS Libfabric"),
)


def _says(made: Made, name: str, texts: Sequence[str]) -> None:
    """Add lines of NCCL at the start of each rank of a replica. The ranks start in any order."""
    host = f"node-{name}"
    for rank in range(int(made.random.integers(1, 4))):
        pid, at = int(made.random.integers(100, 99_999)), int(made.random.integers(5_000, 60_000))
        for number, text in enumerate(texts):
            line = text.replace("{n}", str(made.random.integers(1, 255)))
            made.say(f"{host}:{pid}:{pid + 40} [{rank}] NCCL INFO {line}", at + number, name)


def _pick(made: Made, some: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    return some[int(made.random.integers(len(some)))]


@whole(training)
def _falls_back(made: Made) -> None:
    """Let NCCL use sockets in all replicas or in some. About half of the nodes report an RDMA port."""
    version = _pick(made, SOCKET_LINES)
    none = NO_DEVICE[int(made.random.integers(len(NO_DEVICE)))]
    some = made.names if made.random.random() < 0.5 else made.names[:: int(made.random.integers(2, 4))]
    fast = _pick(made, RDMA_LINES[1:4])
    for name in made.names:
        _says(made, name, (none, *version) if name in some else fast)
        if made.random.random() < 0.5:
            made.nodes["node.rdma.speed", f"node-{name}", "mlx5_0:1"] = np.full(len(made.time), 50e9)


@whole(training)
def _uses_rdma(made: Made) -> None:
    version = _pick(made, RDMA_LINES)
    for name in made.names:
        _says(made, name, ("Bootstrap : Using eth0:10.0.0.{n}<0>", *version))
        made.nodes["node.rdma.speed", f"node-{name}", "mlx5_0:1"] = np.full(len(made.time), 50e9)


@whole(training)
def _sockets_by_choice(made: Made) -> None:
    """Let jobs disable InfiniBand by an environment variable, as in a cluster without it."""
    version = _pick(made, SOCKET_LINES)
    for name in made.names:
        _says(made, name, ("NCCL_IB_DISABLE set by environment to 1.", *version))


SHORTAGES: Mapping[str, tuple[Fault, ...]] = {
    "mem_overrequest": (_memory_overrequest,),
    "load_imbalance_gpu": (_uneven_work,),
    "dataloader_starved": (_starved,),
    "swap": (_swaps,),
    "net_errors": (_loses_packets,),
    "comm_bound": (_full_link, _full_link_without_devices, _full_lanes, _raised_nvlink),
    "cpu_hog": (_hog,),
    "rdma_fallback": (_falls_back,),
}
"""Makers of jobs with a fault, by the rule that the diagnosis must name as the root cause."""
NEAR_MISSES: Mapping[str, Fault] = {
    "memory for a moment": _memory_peak,
    "memory of a whole node": _whole_node,
    "slightly uneven devices": _slightly_uneven,
    "devices in turns": _in_turns,
    "checkpoints": _checkpoints,
    "prefetching": _prefetches,
    "mapped files": _maps_files,
    "few lost packets": _loses_few_packets,
    "overlapped exchange": _busy_link,
    "overlapped exchange of devices": _busy_device_links,
    "more exchange over NVLink": _more_over_nvlink,
    "full of other jobs": _beside_others,
    "nobody waits": _nobody_waits,
    "RDMA": _uses_rdma,
    "sockets by choice": _sockets_by_choice,
}
"""Makers of healthy jobs that resemble these faults, by name."""
