"""Generated jobs with one fault each, and healthy ones of different kinds."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from jobmeter.examples.faults.build import GIB, START, USUAL, Made, Shape, batch, training
from jobmeter.examples.faults.wordings import CHATTER, WORDINGS, draw_line
from jobmeter.model.device import DeviceState
from jobmeter.model.event import ALLOCATION_MISMATCH, GPU_LOST, Event, EventSource, Level
from jobmeter.model.job import JobState
from jobmeter.model.time import MINUTE, SECOND


class Fault(Protocol):
    """Makes a job with a fault, or a healthy one: of the usual shape, or of another."""

    def __call__(self, random: np.random.Generator, shape: Shape = USUAL) -> Made:
        """Return the job."""
        ...


Change = Callable[[Made, str, str], None]
"""Changes one member of a job, by replica and device (empty: the replica itself)."""
_TRACE = "Traceback (most recent call last):"
_FRAME = '  File "train.py", line 12, in <module>'
_RAISED = re.compile(r"(?!Error: )(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Exhausted|Invalid)?(?:: |$)")


def _whole(base: Fault) -> Callable[[Callable[[Made], None]], Fault]:
    """A job with a change to all of it."""

    def fault(change: Callable[[Made], None]) -> Fault:
        def make(random: np.random.Generator, shape: Shape = USUAL) -> Made:
            made = base(random, shape)
            change(made)
            return made

        return make

    return fault


def _members(base: Fault, members: Callable[[Made], Sequence[tuple[str, str]]], change: Change, *, only: bool) -> Fault:
    @_whole(base)
    def fault(made: Made) -> None:
        every = members(made)
        for replica, device in [every[int(made.random.integers(len(every)))]] if only else every:
            change(made, replica, device)

    return fault


def _devices(change: Change, *, only: bool = False) -> Fault:
    """A training job with a change to its devices, or to one of them."""
    return _members(training, lambda made: made.gpus, change, only=only)


def _replicas(base: Fault, change: Change, *, only: bool = False) -> Fault:
    """A job with a change to its replicas, or to one of them."""
    return _members(base, lambda made: [(name, "") for name in made.names], change, only=only)


def _set(metric: str, mean: float, spread: float, *, always: bool = False) -> Change:
    """A series at another level: ``always``, or from the onset of the fault on where it was measured before."""

    def change(made: Made, replica: str, device: str) -> None:
        value = made.noise(mean, spread)
        before = made.series.get((metric, replica, device))
        if before is None and metric in _PROFILED and not always:
            return  # this job's devices have no such counter
        if before is not None and not always:
            first = made.at(made.shape.onset)
            value[:first] = before[:first]
        made.series[metric, replica, device] = value

    return change


_PROFILED = frozenset({"gpu.sm.active", "gpu.tensor.active"})


def _scaled(metric: str, factor: float) -> Change:
    """A series that is a share of what it was, from the onset of the fault on."""

    def change(made: Made, replica: str, device: str) -> None:
        own = made.series.get((metric, replica, device))
        if own is not None:
            own[made.at(made.shape.onset) :] *= factor

    return change


def _all(*changes: Change) -> Change:
    def change(made: Made, replica: str, device: str) -> None:
        for one in changes:
            one(made, replica, device)

    return change


def _idle(*, always: bool = False) -> Change:
    levels = (("gpu.utilization", 0.0, 0.002), ("gpu.sm.active", 0.0, 0.001), ("gpu.tensor.active", 0.0, 0.001))
    return _all(*(_set(*level, always=always) for level in (*levels, ("gpu.power", 90.0, 2.0))))


_STARVED = _all(_set("gpu.utilization", 0.05, 0.01), _set("gpu.sm.active", 0.04, 0.01))
_IO_BOUND = _all(_set("pressure.io", 0.8, 0.05), _set("cpu.utilization", 0.1, 0.02))


def _overrequest(made: Made, name: str, device: str) -> None:
    made.series["cpu.limit", name, device] = np.full(len(made.time), 64.0)


def _busy_rank(made: Made, name: str, _: str) -> None:
    for other in made.names:
        made.series["cpu.usage", other, ""] = made.noise(1.9 if other == name else 0.1, 0.05)


def _busy_rank_starved(made: Made, name: str, _: str) -> None:
    """As on a full machine: the busy rank is given hardly more than the others, and waits for more."""
    for other in made.names:
        made.series["cpu.usage", other, ""] = made.noise(0.1, 0.03) if other == name else made.noise(0.01, 0.005)
        made.series["pressure.cpu", other, ""] = made.noise(0.6, 0.15) if other == name else made.noise(0.02, 0.02)


@_whole(batch)
def _full_machine(made: Made) -> None:
    """All replicas alike, given little CPU and waiting for more."""
    made.put("cpu.usage", lambda: made.noise(0.1, 0.05))
    made.put("cpu.utilization", lambda: made.noise(0.05, 0.02))
    made.put("pressure.cpu", lambda: np.minimum(made.noise(0.4, 0.15), 1.0))


def _leak(metric: str, total: float) -> Change:
    def change(made: Made, name: str, _: str) -> None:
        for key in made.series:
            if key[:2] == (metric, name):
                made.series[key] += np.linspace(0, total, len(made.time))

    return change


@_whole(batch)
def _hang(made: Made) -> None:
    stop = made.at(float(made.random.uniform(0.3, 0.7)))
    for metric in ("cpu.usage", "network.receive", "disk.read", "cpu.utilization", "pressure.io"):
        for name in made.names:
            made.series[metric, name, ""][stop:] = 0.001


@_whole(batch)
def _silence(made: Made) -> None:
    limit = START + made.length - int(made.random.integers(35, 50)) * MINUTE
    made.lines = [line for line in made.lines if line.time_ns // 1_000_000 < limit]


def _counter(metric: str, count: int, each: float) -> Change:
    def change(made: Made, replica: str, device: str) -> None:
        grown = np.zeros(len(made.time))
        places = np.linspace(made.at(0.3), len(grown) - 1, count).astype(int)
        np.add.at(grown, places, each)
        made.increases[metric, replica, device] = grown

    return change


def _flag(metric: str) -> Change:
    def change(made: Made, replica: str, device: str) -> None:
        made.series[metric, replica, device] = (np.arange(len(made.time)) > made.at(0.4)).astype(np.float64)

    return change


def _lost(made: Made, replica: str, device: str) -> None:
    state = DeviceState(made.random.choice([DeviceState.LOST, DeviceState.RESET_REQUIRED, DeviceState.HANGS]))
    since = made.at(float(made.random.uniform(0.1, 0.9)))
    made.series["gpu.state", replica, device] = np.where(np.arange(len(made.time)) > since, float(state.code), 0.0)


@_whole(training)
def _lost_by_an_event(made: Made) -> None:
    message = "gpu3, NVIDIA H200, cannot be read (GPU is lost)."
    _warn(made, made.length // 2, node="n0", reason=GPU_LOST, message=message, subject="device gpu3")


@_whole(batch)
def _full(made: Made) -> None:
    free = np.linspace(5e11, 5e9, len(made.time))
    made.nodes["node.filesystem.available", "node-worker-1", "/data"] = free


@_whole(batch)
def _blocked(made: Made) -> None:
    first = made.at(float(made.random.uniform(0.1, 0.6)))
    last = int(np.searchsorted(made.time, made.time[first] + made.random.integers(8, 30) * MINUTE))
    made.nodes["node.processes.blocked", "node-worker-1", ""][first:last] = 3.0


@_whole(batch)
def _skewed(made: Made) -> None:
    made.last_sample = START + made.length + int(made.random.integers(3_000, 100_000))


@_whole(batch)
def _stepped(made: Made) -> None:
    """A clock that was set, ahead or back, while the job ran."""
    step = float(made.random.choice([-1, 1]) * made.random.uniform(2, 500))
    made.nodes["agent.clock.offset", "node-worker-2", ""] = np.where(
        np.arange(len(made.time)) > made.at(0.5), step, 0.0
    )


@_whole(batch)
def _gap(made: Made) -> None:
    first = int(made.random.integers(5, made.length // MINUTE - 30))
    made.gap = ("worker-2", first * MINUTE, (first + int(made.random.integers(10, 28))) * MINUTE)


@_whole(training)
def _xid(made: Made) -> None:
    code = int(made.random.choice([31, 48, 63, 74, 79, 95, 119]))
    made.say_kernel(f"NVRM: Xid (PCI:0000:3b:00): {code}, pid=1234, name=python", 50 * MINUTE)


def _kernel(*texts: str) -> Fault:
    """A node whose kernel says these lines, some seconds apart."""

    @_whole(training)
    def fault(made: Made) -> None:
        at = int(made.random.integers(20, 90)) * MINUTE
        for number, text in enumerate(texts):
            made.say_kernel(text, at + number * int(made.random.integers(1, 9)) * SECOND)

    return fault


@_whole(batch)
def _killed_for_memory(made: Made) -> None:
    """The kernel names no job where the agent does not know the process."""
    made.fail("worker-1", 137)
    made.say_kernel("Out of memory: Killed process 4711 (python) total-vm:9kB, anon-rss:8kB", made.length - 900)


@_whole(batch)
def _oom(made: Made) -> None:
    made.increases["memory.oom.kills", "worker-1", ""] = np.append(np.zeros(len(made.time) - 1), 1.0)
    made.fail("worker-1", 137, reason="OOMKilled: the limit of the control group")


def _dies(code: int, *texts: str, reason: str = "", cascade: tuple[str, ...] = ()) -> Fault:
    """One replica fails with these lines; the others may follow."""

    @_whole(batch)
    def fault(made: Made) -> None:
        first = made.names[int(made.random.integers(made.replicas))]
        made.fail(first, code, *texts, early=2_000 if cascade else 0, reason=reason)
        for other in made.names if cascade else ():
            if other != first:
                made.fail(other, 1, *cascade, early=int(made.random.integers(0, 900)))

    return fault


_SHELL_CODES = {"file_missing": 127, "permission_denied": 126, "config_error": 2, "segfault": 139, "nccl_timeout": 134}
_STOPPED_BY_SCHEDULER = {"time_limit", "preempted", "node_failure"}


def _worded(rule: str) -> Fault:
    """One replica fails with a line of ``WORDINGS``, behind a traceback where the line is an exception's."""

    @_whole(batch)
    def fault(made: Made) -> None:
        first = made.names[int(made.random.integers(made.replicas))]
        text = draw_line(made.random, str(made.random.choice(WORDINGS[rule])))
        raised = _RAISED.match(text) is not None
        code = 1 if raised else 143 if rule in _STOPPED_BY_SCHEDULER else _SHELL_CODES.get(rule, 1)
        rank = f"[rank{made.random.integers(8)}]: " if raised and made.random.random() < 0.3 else ""
        before = [_TRACE, _FRAME, "    main()"] if raised else []
        chatter = [draw_line(made.random, str(one)) for one in made.random.choice(CHATTER, 3)]
        made.fail(first, code, *chatter, *(f"{rank}{one}" for one in (*before, text)))

    return fault


def _raises(text: str) -> Fault:
    return _dies(1, _TRACE, _FRAME, "    main()", text)


@_whole(batch)
def _stopped(made: Made) -> None:
    for name in made.names:
        made.fail(name, 143)
    made.state = JobState.STOPPED


@_whole(batch)
def _interrupted(made: Made) -> None:
    """A job that its user stopped: all ranks end by one signal, some seconds apart."""
    code = int(made.random.choice([129, 130, 143]))
    for name in made.names:
        made.fail(name, code, early=int(made.random.integers(0, 20_000)))
    made.state = JobState.STOPPED


def _warn(made: Made, at: int, **facts: Any) -> None:  # noqa: ANN401 - fields of an event
    """An event of the first replica that warns."""
    source, level = EventSource.REPLICA, Level.WARNING
    made.events = [Event(time=START + at, job="made", replica="worker-0", source=source, level=level, **facts)]


@_whole(batch)
def _evicted(made: Made) -> None:
    made.fail("worker-0", 143)
    _warn(made, made.length - 500, reason="Preempted", message="Preempted by a job of higher priority.")


@_whole(training)
def _misplaced(made: Made) -> None:
    message = "It computes on gpu3, but SLURM_JOB_GPUS gives it gpu2."
    _warn(made, made.length // 2, node="n0", reason=ALLOCATION_MISMATCH, message=message, subject="device gpu3")


_NCCL = "[E ProcessGroupNCCL.cpp:475] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(OpType=ALLREDUCE)"

FAULTS: Mapping[str, tuple[Fault, ...]] = {
    "allocation_mismatch": (_misplaced,),
    "gpu_idle_allocated": (_devices(_idle()),),
    "gpu_partly_unused": (_devices(_idle(always=True), only=True),),
    "gpu_low_util": (
        _devices(_all(_set("gpu.utilization", 0.12, 0.04, always=True), _set("gpu.sm.active", 0.1, 0.03, always=True))),
    ),
    "gpu_busy_but_empty": (
        _devices(_all(_set("gpu.utilization", 0.98, 0.01), _set("gpu.sm.active", 0.2, 0.02, always=True))),
        _devices(_all(_set("gpu.utilization", 0.97, 0.01), _set("gpu.memory.utilization", 0.02, 0.002))),
    ),
    "cpu_bound_input": (_replicas(_devices(_STARVED), _set("cpu.utilization", 0.98, 0.01)),),
    "io_bound_input": (_replicas(_devices(_STARVED), _IO_BOUND), _replicas(batch, _IO_BOUND)),
    "cpu_throttled": (_replicas(batch, _set("cpu.throttled.time", 1.2, 0.2)),),
    "cpu_overrequest": (_replicas(batch, _overrequest),),
    "straggler_rank": (_replicas(batch, _busy_rank, only=True), _replicas(batch, _busy_rank_starved, only=True)),
    "straggler_gpu": (
        _devices(_all(_scaled("gpu.power", 0.68), _scaled("gpu.sm.active", 0.6)), only=True),
        _devices(_scaled("gpu.clock.sm", 0.76), only=True),
        _devices(_all(_scaled("gpu.utilization", 0.6), _scaled("gpu.power", 0.7)), only=True),
    ),
    "hang_hw": (_hang,),
    "hang_log": (_silence,),
    "host_oom_kill": (_oom, _killed_for_memory),
    "host_mem_near_limit": (_replicas(batch, _set("memory.utilization", 0.96, 0.005), only=True),),
    "host_mem_leak": (_replicas(batch, _leak("memory.usage", 30 * GIB), only=True),),
    "gpu_mem_leak": (_replicas(training, _leak("gpu.memory.usage", 14 * GIB), only=True),),
    "gpu_mem_near_full": (_devices(_set("gpu.memory.utilization", 0.992, 0.001), only=True),),
    "ecc_uncorrected": (_devices(_counter("gpu.ecc.uncorrected", 1, 1.0), only=True),),
    "ecc_corrected_storm": (_devices(_counter("gpu.ecc.corrected", 400, 3.0), only=True),),
    "remap_pending": (_devices(_flag("gpu.remapped.rows.pending"), only=True),),
    "gpu_missing": (_devices(_lost, only=True), _lost_by_an_event),
    "remap_failure": (_devices(_flag("gpu.remapped.rows.failed"), only=True),),
    "thermal": (_devices(_set("gpu.temperature", 92, 0.5), only=True),),
    "throttle_power": (
        _devices(_set("gpu.throttle.power", 0.6, 0.05), only=True),
        _devices(_set("gpu.throttle.power.brake", 0.2, 0.02), only=True),
    ),
    "fs_full": (
        _full,
        _raises("OSError: [Errno 28] No space left on device: '/data/checkpoint.pt'"),
        _dies(1, "cp: error writing '/out/model': No space left on device"),
        _replicas(batch, _set("storage.ephemeral.utilization", 0.985, 0.002), only=True),
    ),
    "fs_readonly": (
        _raises("OSError: [Errno 30] Read-only file system: '/data/out'"),
        _dies(1, "touch: cannot touch '/data/x': Read-only file system"),
    ),
    "d_state": (_blocked,),
    "clock_skew": (_skewed, _stepped),
    "agent_gap": (_gap,),
    "xid": (_xid, _kernel("NVRM: Xid (PCI:0000:3b:00): 48, pid=77, name=python, DBE")),
    "link_flap": (
        _kernel("mlx5_core 0000:3b:00.0 ens1f0np0: Link down", "mlx5_core 0000:3b:00.0 ens1f0np0: Link up"),
        _kernel("ixgbe 0000:01:00.0 eth0: NIC Link is Down", "ixgbe 0000:01:00.0 eth0: NIC Link is Up 10 Gbps"),
        _kernel("tg3 0000:02:00.0 eno1: Link is down"),
        _kernel("ib0: link down", "ib0: link up"),
        _kernel("infiniband mlx5_5: Port: 1 Link DOWN", "infiniband mlx5_5: Port: 1 Link ACTIVE"),
        _kernel("bond0: (slave ens1f1): link status definitely down, disabling slave"),
        _kernel("mlx5_core 0000:86:00.0: Port module event: module 0, Cable unplugged"),
    ),
    "fs_error": (
        _kernel("EXT4-fs error (device sda1): ext4_lookup:1855: inode #2: comm python: deleted inode referenced: 12"),
        _kernel("EXT4-fs (nvme0n1p1): Remounting filesystem read-only"),
        _kernel("XFS (dm-3): Metadata corruption detected at xfs_agi_verify+0x1b, xfs_agi block 0x2"),
        _kernel("blk_update_request: I/O error, dev sdb, sector 2048 op 0x0:(READ)", "Buffer I/O error on dev sdb"),
        _kernel("nfs: server storage-1 not responding, timed out"),
    ),
    "python_exception": (
        _raises("ValueError: the batch is empty"),
        _dies(1, _TRACE, _FRAME, "KeyError: 'label'", cascade=(_NCCL,)),
        _raises("ModuleNotFoundError: No module named 'apex'"),
    ),
    "config_error": (
        _dies(2, "usage: train.py [-h] --data DATA", "train.py: error: the following arguments are required: --data"),
        _raises("omegaconf.errors.ConfigAttributeError: Key 'lr' is not in struct"),
    ),
    "file_missing": (
        _raises("FileNotFoundError: [Errno 2] No such file or directory: '/data/train.bin'"),
        _dies(127, "sh: 1: trian: not found"),
    ),
    "permission_denied": (
        _raises("PermissionError: [Errno 13] Permission denied: '/data/out'"),
        _dies(126, "sh: 1: ./train.sh: Permission denied"),
    ),
    "checkpoint_mismatch": (
        _raises("RuntimeError: Error(s) in loading state_dict for Net: size mismatch for fc.weight: copying a param"),
    ),
    "shape_mismatch": (
        _raises("RuntimeError: mat1 and mat2 shapes cannot be multiplied (32x512 and 256x10)"),
        _raises("ValueError: operands could not be broadcast together with shapes (3,) (4,)"),
    ),
    "cuda_oom": (
        _raises("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."),
        _dies(1, _TRACE, _FRAME, "RuntimeError: CUDA out of memory.", cascade=(_NCCL,)),
    ),
    "nan_loss": (_dies(1, "epoch 3 loss: nan", "giving up"), _raises("ValueError: loss is nan at step 300")),
    "segfault": (_dies(139), _dies(139, "Fatal Python error: Segmentation fault", cascade=(_NCCL,))),
    "killed": (_dies(137),),
    "time_limit": (
        _dies(143, "slurmstepd: error: *** JOB 123 ON n1 CANCELLED AT 2026-01-01T00:00:00 DUE TO TIME LIMIT ***"),
        _dies(1, reason="DeadlineExceeded"),
    ),
    "cancelled": (_stopped, _interrupted),
    "preempted": (_evicted, _dies(143, "slurmstepd: error: *** STEP 1.0 CANCELLED DUE TO PREEMPTION ***")),
    "node_failure": (_dies(1, reason="NODE_FAIL"), _dies(1, reason="NodeLost")),
    "gpu_hardware": (_raises("RuntimeError: CUDA error: uncorrectable ECC error encountered"),),
    "gpu_peer_access": (_raises("RuntimeError: CUDA error: peer access is not supported between these two devices"),),
    "nccl_timeout": (_dies(134, _NCCL),),
    "rank_lost": (),
    "unknown_exit": (_dies(3), _dies(1, "bye")),
}
"""By rule the faults that it must name as their root."""
FAULTS = {rule: (*makes, *([_worded(rule)] if rule in WORDINGS else ())) for rule, makes in FAULTS.items()}


@_whole(batch)
def _plateau(made: Made) -> None:
    """Memory that grows while caches fill, and then no more."""
    for name in made.names:
        made.series["memory.usage", name, ""] += 20 * GIB * (1 - np.exp(-(made.time - START) / (400 * SECOND)))


@_whole(batch)
def _sawtooth(made: Made) -> None:
    """Memory that grows within an epoch and is given back."""
    for name in made.names:
        made.series["memory.usage", name, ""] += 10 * GIB * ((made.time - START) % (450 * SECOND)) / (450 * SECOND)


@_whole(training)
def _waves(made: Made) -> None:
    """Devices that pause for checkpoints and evaluation."""
    for key, value in made.series.items():
        if key[0] in {"gpu.utilization", "gpu.sm.active", "gpu.power", "gpu.tensor.active"}:
            value[(made.time - START) % (600 * SECOND) < 50 * SECOND] *= 0.1


@_whole(batch)
def _uneven(made: Made) -> None:
    """Half of the replicas have more to do, by design."""
    for rank, name in enumerate(made.names):
        made.series["cpu.usage", name, ""] *= 1.0 if rank % 2 else 0.45


@_whole(training)
def _short(made: Made) -> None:
    """A job that is over before there is anything to judge, with devices that it hardly used."""
    count = int(np.searchsorted(made.time, START + 5 * MINUTE))
    made.series = {key: value[:count] for key, value in made.series.items()}
    made.nodes, made.length, made.state = {}, 5 * MINUTE, JobState.SUCCEEDED
    made.last_sample = int(made.time[count - 1])
    made.lines = made.lines[:5]


@_whole(batch)
def _caught(made: Made) -> None:
    """Exceptions that were caught, in a job that succeeded."""
    for text in (_TRACE, _FRAME, "ConnectionResetError: [Errno 104] Connection reset by peer", "trying again"):
        made.say(text, 20 * MINUTE, level=Level.ERROR)
    made.say("RuntimeError: CUDA out of memory. (caught, halving the batch)", 21 * MINUTE, level=Level.WARNING)
    made.state = JobState.SUCCEEDED


@_whole(training)
def _talks_of_faults(made: Made) -> None:
    """A job that prints texts of faults: a monitor of other machines, say."""
    for text in (
        "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, GPU has fallen off the bus.",
        "Out of memory: Killed process 4711 (python) total-vm:9kB",
        "OSError: [Errno 28] No space left on device",
        "mlx5_5: Port: 1 Link DOWN",
    ):
        made.say(text, 20 * MINUTE, level=Level.ERROR)


@_whole(training)
def _done(made: Made) -> None:
    made.state = JobState.SUCCEEDED


_boots = _kernel(
    "ata1: SATA link down (SStatus 0 SControl 300)",
    "veth9f2c1: Lost carrier",
    "ixgbe 0000:01:00.0 eth0: NIC Link is Up 10 Gbps, Flow Control: RX/TX",
    "pcieport 0000:00:1c.0: pciehp: Slot(0): Link Down",
    "EXT4-fs (sda1): mounted filesystem with ordered data mode",
    "XFS (dm-3): Ending clean mount",
)

CLEAN: Mapping[str, Fault] = {
    "training": training,
    "batch": batch,
    "full machine": _full_machine,
    "finished training": _done,
    "memory plateau": _plateau,
    "memory sawtooth": _sawtooth,
    "pauses": _waves,
    "uneven by design": _uneven,
    "short": _short,
    "caught errors": _caught,
    "a kernel that starts": _boots,
    "texts of faults": _talks_of_faults,
}
"""Healthy jobs: no rule may find anything in them."""

COMPANIONS: Mapping[str, frozenset[str]] = {
    "gpu_partly_unused": frozenset({"gpu_idle_allocated"}),
    "gpu_idle_allocated": frozenset({"gpu_low_util"}),
    "straggler_gpu": frozenset({"gpu_busy_but_empty"}),
    "straggler_rank": frozenset({"cpu_overrequest"}),
    "cpu_bound_input": frozenset({"gpu_low_util"}),
    "io_bound_input": frozenset({"gpu_low_util"}),
    "gpu_mem_leak": frozenset({"gpu_mem_near_full"}),
    "host_mem_leak": frozenset({"host_mem_near_limit", "host_oom_kill"}),
    "host_oom_kill": frozenset({"host_mem_near_limit", "host_mem_leak"}),
    "hang_hw": frozenset({"hang_log"}),
    "killed": frozenset({"rank_lost"}),
    "segfault": frozenset({"rank_lost"}),
}
"""What is true beside a fault: a device that is never used is idle, too."""
CONSEQUENCES = frozenset({"nccl_timeout", "rank_lost"})
"""Rules that may be reported of any failure as its cascade."""
