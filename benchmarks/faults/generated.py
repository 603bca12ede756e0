"""Generated jobs with one fault each."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.faults.build import GIB, START, Made, batch, training
from benchmarks.faults.changes import (
    FRAME,
    TRACE,
    Change,
    Fault,
    change_all,
    devices,
    kernel_lines,
    replicas,
    scale_level,
    set_level,
    whole,
)
from benchmarks.faults.gpu_faults import GPU_COMPANIONS, GPU_FAULTS, SLOW_CLOCK, idle
from benchmarks.faults.shortages import SHORTAGES
from benchmarks.faults.wordings import CHATTER, UNCAUGHT, WORDINGS, draw_line
from jobmeter.model.device import DeviceState
from jobmeter.model.event import ALLOCATION_MISMATCH, GPU_LOST, Event, EventSource, Level
from jobmeter.model.job import JobState
from jobmeter.model.time import MINUTE, NS_PER_MS

_STARVED = change_all(set_level("gpu.utilization", 0.05, 0.01), set_level("gpu.sm.active", 0.04, 0.01))
_IO_BOUND = change_all(set_level("pressure.io", 0.8, 0.05), set_level("cpu.utilization", 0.1, 0.02))


def _overrequest(made: Made, name: str, device: str) -> None:
    made.series["cpu.limit", name, device] = np.full(len(made.time), 64.0)


def _busy_rank(made: Made, name: str, _: str) -> None:
    for other in made.names:
        made.series["cpu.usage", other, ""] = made.noise(1.9 if other == name else 0.1, 0.05)


def _busy_rank_starved(made: Made, name: str, _: str) -> None:
    """Let one busy rank wait for CPU that a full machine does not give: it gets little more than the idle ranks."""
    for other in made.names:
        made.series["cpu.usage", other, ""] = made.noise(0.1, 0.03) if other == name else made.noise(0.01, 0.005)
        made.series["pressure.cpu", other, ""] = made.noise(0.6, 0.15) if other == name else made.noise(0.02, 0.02)


def _leak(metric: str, total: float) -> Change:
    def change(made: Made, name: str, _: str) -> None:
        for key in made.series:
            if key[:2] == (metric, name):
                made.series[key] += np.linspace(0, total, len(made.time))

    return change


@whole(batch)
def _hang(made: Made) -> None:
    stop = made.begin(float(made.random.uniform(0.3, 0.7)))
    _stand_still(made, stop, made.names)


def _stand_still(made: Made, stop: int, names: Sequence[str]) -> None:
    flows = ("network.receive", "network.transmit", "disk.read", "disk.write")
    for metric in ("cpu.usage", *flows, "cpu.utilization", "pressure.io", "pressure.cpu"):
        for name in names:
            made.series[metric, name, ""][stop:] = 0.001


def _lose(made: Made) -> int:
    """Let the samples and log lines of one rank end; return the index of the first sample without that rank."""
    stop = made.begin(float(made.random.uniform(0.3, 0.7)))
    lost = made.names[int(made.random.integers(made.replicas))]
    made.series = {key: value[:stop] if key[1] == lost else value for key, value in made.series.items()}
    made.lines = [line for line in made.lines if line.replica != lost or line.time_ns < made.began * NS_PER_MS]
    return stop


def _wait(made: Made) -> None:
    """Let one rank disappear. All other ranks wait for that rank from the next step on."""
    stop = _lose(made) + int(made.random.integers(0, 2))
    names = [name for name in made.names if len(made.series["cpu.usage", name, ""]) == len(made.time)]
    _stand_still(made, stop, names)
    made.lines = [line for line in made.lines if line.time_ns // NS_PER_MS < made.time[stop]]
    for (metric, name, device), value in made.series.items():
        if device and name in names and metric in _SPINNING:
            value[stop:] = made.noise(_SPINNING[metric] * value[:stop].mean(), 0.0)[stop:]
    for name in names if made.devices else ():
        for place in range(made.devices):
            made.series["gpu.utilization", name, f"gpu{place}"][stop:] = 1.0


_SPINNING = {"gpu.sm.active": 0.15, "gpu.tensor.active": 0.0, "gpu.power": 0.4}
"""Levels of a device that waits in a collective, as shares of the usual level of each metric."""


@whole(batch)
def _vanishes(made: Made) -> None:
    _lose(made)


_vanishes_and_others_wait = whole(batch)(_wait)
_vanishes_and_devices_spin = whole(training)(_wait)


@whole(batch)
def _silence(made: Made) -> None:
    limit = made.began = START + made.length - int(made.random.integers(35, 50)) * MINUTE
    made.lines = [line for line in made.lines if line.time_ns // 1_000_000 < limit]


def _counter(metric: str, count: int, each: float) -> Change:
    def change(made: Made, replica: str, device: str) -> None:
        grown = np.zeros(len(made.time))
        places = np.linspace(made.begin(0.3), len(grown) - 1, count).astype(int)
        np.add.at(grown, places, each)
        made.increases[metric, replica, device] = grown

    return change


def _flag(metric: str) -> Change:
    def change(made: Made, replica: str, device: str) -> None:
        made.series[metric, replica, device] = (np.arange(len(made.time)) > made.begin(0.4)).astype(np.float64)

    return change


def _lost(made: Made, replica: str, device: str) -> None:
    state = DeviceState(made.random.choice([DeviceState.LOST, DeviceState.RESET_REQUIRED, DeviceState.HANGS]))
    since = made.begin(float(made.random.uniform(0.1, 0.9)))
    made.series["gpu.state", replica, device] = np.where(np.arange(len(made.time)) > since, float(state.code), 0.0)


@whole(training)
def _slow_start(made: Made) -> None:
    """Let devices compute nothing while the program starts. In half of the jobs the CPU is full meanwhile."""
    first = int(np.searchsorted(made.time, START + int(made.random.integers(25, 50)) * MINUTE))
    loads = bool(made.random.random() < 0.5)
    levels = {"gpu.utilization": 0.002, "gpu.sm.active": 0.001, "gpu.tensor.active": 0.001, "gpu.power": 90.0}
    levels |= {"cpu.utilization": 0.97} if loads else {}
    for (metric, _, _), value in made.series.items():
        if metric in levels:
            value[:first] = made.noise(levels[metric], 0.03 * levels[metric])[:first]


@whole(training)
def _lost_by_an_event(made: Made) -> None:
    made.begin(0.5)
    message = "gpu3, NVIDIA H200, cannot be read (GPU is lost)."
    _warn(made, made.length // 2, node="n0", reason=GPU_LOST, message=message, subject="device gpu3")


@whole(batch)
def _full(made: Made) -> None:
    free = np.linspace(5e11, 5e9, len(made.time))
    made.begin(0.707)  # less than 15 % is free from here on
    made.nodes["node.filesystem.available", "node-worker-1", "/data"] = free


@whole(batch)
def _blocked(made: Made) -> None:
    first = made.at(float(made.random.uniform(0.1, 0.6)))
    last = int(np.searchsorted(made.time, made.time[first] + made.random.integers(8, 30) * MINUTE))
    made.nodes["node.processes.blocked", "node-worker-1", ""][first:last] = 3.0


@whole(batch)
def _skewed(made: Made) -> None:
    made.last_sample = START + made.length + int(made.random.integers(3_000, 100_000))


@whole(batch)
def _stepped(made: Made) -> None:
    """Set the clock of a node forward or back while the job runs."""
    step = float(made.random.choice([-1, 1]) * made.random.uniform(2, 500))
    made.nodes["agent.clock.offset", "node-worker-2", ""] = np.where(
        np.arange(len(made.time)) > made.at(0.5), step, 0.0
    )


@whole(batch)
def _gap(made: Made) -> None:
    first = int(made.random.integers(5, made.length // MINUTE - 30))
    made.gap = ("worker-2", first * MINUTE, (first + int(made.random.integers(10, 28))) * MINUTE)


@whole(training)
def _xid(made: Made) -> None:
    code = int(made.random.choice([31, 48, 63, 74, 79, 95, 119]))
    made.say_kernel(f"NVRM: Xid (PCI:0000:3b:00): {code}, pid=1234, name=python", 50 * MINUTE)


@whole(batch)
def _killed_for_memory(made: Made) -> None:
    """Let the kernel kill a replica for lack of memory.

    The kernel's line names no job, because the agent does not know the process.
    """
    made.fail("worker-1", 137)
    made.say_kernel("Out of memory: Killed process 4711 (python) total-vm:9kB, anon-rss:8kB", made.length - 900)


@whole(batch)
def _oom(made: Made) -> None:
    made.increases["memory.oom.kills", "worker-1", ""] = np.append(np.zeros(len(made.time) - 1), 1.0)
    made.fail("worker-1", 137, reason="OOMKilled: the limit of the control group")


def _dies(code: int, *texts: str, reason: str = "", cascade: tuple[str, ...] = ()) -> Fault:
    """Return a maker of jobs in which one replica fails with ``texts``.

    With ``cascade`` the other replicas fail with these lines at most two seconds later.
    """

    @whole(batch)
    def fault(made: Made) -> None:
        first = made.names[int(made.random.integers(made.replicas))]
        made.fail(first, code, *texts, early=2_000 if cascade else 0, reason=reason)
        for other in made.names if cascade else ():
            if other != first:
                made.fail(other, 1, *cascade, early=int(made.random.integers(0, 900)))

    return fault


_RAISED = re.compile(r"(?!Error: )(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Exhausted|Invalid)?(?:: |$)")
"""Pattern of a line that starts with the class of an exception."""
_SHELL_CODES = {"file_missing": 127, "permission_denied": 126, "config_error": 2, "segfault": 139, "nccl_timeout": 134}
_STOPPED_BY_SCHEDULER = {"time_limit", "preempted", "node_failure"}


def _worded(rule: str) -> Fault:
    """Return a maker of jobs in which one replica fails with a line of ``WORDINGS``.

    A line that is an exception's comes after a traceback.
    """

    @whole(batch)
    def fault(made: Made) -> None:
        first = made.names[int(made.random.integers(made.replicas))]
        text = draw_line(made.random, str(made.random.choice(WORDINGS[rule])))
        raised = _RAISED.match(text) is not None
        code = 1 if raised else 143 if rule in _STOPPED_BY_SCHEDULER else _SHELL_CODES.get(rule, 1)
        rank = f"[rank{made.random.integers(8)}]: " if raised and made.random.random() < 0.3 else ""
        before = [TRACE, FRAME, "    main()"] if raised else []
        chatter = [draw_line(made.random, str(one)) for one in made.random.choice(CHATTER, 3)]
        made.fail(first, code, *chatter, *(f"{rank}{one}" for one in (*before, text)))

    return fault


def _raises(text: str) -> Fault:
    return _dies(1, TRACE, FRAME, "    main()", text)


@whole(batch)
def _stopped(made: Made) -> None:
    for name in made.names:
        made.fail(name, 143)
    made.state = JobState.STOPPED


@whole(batch)
def _interrupted(made: Made) -> None:
    """Let the user stop the job: all ranks end by the same signal, some seconds apart."""
    code = int(made.random.choice([129, 130, 143]))
    for name in made.names:
        made.fail(name, code, early=int(made.random.integers(0, 20_000)))
    made.state = JobState.STOPPED


def _warn(made: Made, at: int, **facts: Any) -> None:
    """Set a warning of the first replica, ``at`` ms after the start, as the job's only event."""
    source, level = EventSource.REPLICA, Level.WARNING
    made.events = [Event(time=START + at, job="made", replica="worker-0", source=source, level=level, **facts)]


@whole(batch)
def _evicted(made: Made) -> None:
    made.fail("worker-0", 143)
    _warn(made, made.length - 500, reason="Preempted", message="Preempted by a job of higher priority.")


@whole(training)
def _misplaced(made: Made) -> None:
    message = "It computes on gpu3, but SLURM_JOB_GPUS gives it gpu2."
    _warn(made, made.length // 2, node="n0", reason=ALLOCATION_MISMATCH, message=message, subject="device gpu3")


_NCCL = "[E ProcessGroupNCCL.cpp:475] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(OpType=ALLREDUCE)"

FAULTS: Mapping[str, tuple[Fault, ...]] = {
    **SHORTAGES,
    "allocation_mismatch": (_misplaced,),
    "gpu_idle_allocated": (devices(idle()),),
    "gpu_partly_unused": (devices(idle(always=True), only=True),),
    "gpu_low_util": (
        devices(
            change_all(
                set_level("gpu.utilization", 0.12, 0.04, always=True),
                set_level("gpu.sm.active", 0.1, 0.03, always=True),
            )
        ),
    ),
    "gpu_busy_but_empty": (
        devices(
            change_all(set_level("gpu.utilization", 0.98, 0.01), set_level("gpu.sm.active", 0.2, 0.02, always=True))
        ),
        devices(change_all(set_level("gpu.utilization", 0.97, 0.01), set_level("gpu.memory.utilization", 0.02, 0.002))),
    ),
    "slow_start": (_slow_start,),
    "cpu_bound_input": (replicas(devices(_STARVED), set_level("cpu.utilization", 0.98, 0.01)),),
    "io_bound_input": (replicas(devices(_STARVED), _IO_BOUND), replicas(batch, _IO_BOUND)),
    "cpu_throttled": (replicas(batch, set_level("cpu.throttled.time", 1.2, 0.2)),),
    "cpu_overrequest": (replicas(batch, _overrequest),),
    "straggler_rank": (replicas(batch, _busy_rank, only=True), replicas(batch, _busy_rank_starved, only=True)),
    "straggler_gpu": (
        devices(change_all(scale_level("gpu.power", 0.68), scale_level("gpu.sm.active", 0.6)), only=True),
        devices(SLOW_CLOCK, only=True),
        devices(change_all(scale_level("gpu.utilization", 0.6), scale_level("gpu.power", 0.7)), only=True),
    ),
    "hang_hw": (_hang,),
    "hang_log": (_silence,),
    "host_oom_kill": (_oom, _killed_for_memory),
    "host_mem_near_limit": (replicas(batch, set_level("memory.utilization", 0.96, 0.005), only=True),),
    "host_mem_leak": (replicas(batch, _leak("memory.usage", 30 * GIB), only=True),),
    "gpu_mem_leak": (replicas(training, _leak("gpu.memory.usage", 14 * GIB), only=True),),
    "gpu_mem_near_full": (devices(set_level("gpu.memory.utilization", 0.992, 0.001), only=True),),
    "ecc_uncorrected": (devices(_counter("gpu.ecc.uncorrected", 1, 1.0), only=True),),
    "ecc_corrected_storm": (devices(_counter("gpu.ecc.corrected", 400, 3.0), only=True),),
    "remap_pending": (devices(_flag("gpu.remapped.rows.pending"), only=True),),
    "gpu_missing": (devices(_lost, only=True), _lost_by_an_event),
    "remap_failure": (devices(_flag("gpu.remapped.rows.failed"), only=True),),
    "thermal": (devices(set_level("gpu.temperature", 92, 0.5), only=True),),
    "throttle_power": (
        devices(set_level("gpu.throttle.power", 0.6, 0.05), only=True),
        devices(set_level("gpu.throttle.power.brake", 0.2, 0.02), only=True),
    ),
    "fs_full": (
        _full,
        _raises("OSError: [Errno 28] No space left on device: '/data/checkpoint.pt'"),
        _dies(1, "cp: error writing '/out/model': No space left on device"),
        replicas(batch, set_level("storage.ephemeral.utilization", 0.985, 0.002), only=True),
    ),
    "fs_readonly": (
        _raises("OSError: [Errno 30] Read-only file system: '/data/out'"),
        _dies(1, "touch: cannot touch '/data/x': Read-only file system"),
    ),
    "d_state": (_blocked,),
    "clock_skew": (_skewed, _stepped),
    "agent_gap": (_gap,),
    "xid": (_xid, kernel_lines("NVRM: Xid (PCI:0000:3b:00): 48, pid=77, name=python, DBE")),
    "link_flap": (
        kernel_lines("mlx5_core 0000:3b:00.0 ens1f0np0: Link down", "mlx5_core 0000:3b:00.0 ens1f0np0: Link up"),
        kernel_lines("ixgbe 0000:01:00.0 eth0: NIC Link is Down", "ixgbe 0000:01:00.0 eth0: NIC Link is Up 10 Gbps"),
        kernel_lines("tg3 0000:02:00.0 eno1: Link is down"),
        kernel_lines("ib0: link down", "ib0: link up"),
        kernel_lines("infiniband mlx5_5: Port: 1 Link DOWN", "infiniband mlx5_5: Port: 1 Link ACTIVE"),
        kernel_lines("bond0: (slave ens1f1): link status definitely down, disabling slave"),
        kernel_lines("mlx5_core 0000:86:00.0: Port module event: module 0, Cable unplugged"),
    ),
    "fs_error": (
        kernel_lines("EXT4-fs error (device sda1): ext4_lookup:1855: inode #2: comm python: deleted inode: 12"),
        kernel_lines("EXT4-fs (nvme0n1p1): Remounting filesystem read-only"),
        kernel_lines("XFS (dm-3): Metadata corruption detected at xfs_agi_verify+0x1b, xfs_agi block 0x2"),
        kernel_lines("blk_update_request: I/O error, dev sdb, sector 2048 op 0x0:(READ)", "Buffer I/O error on dev sd"),
        kernel_lines("nfs: server storage-1 not responding, timed out"),
    ),
    "python_exception": (
        _raises("ValueError: the batch is empty"),
        _dies(1, TRACE, FRAME, "KeyError: 'label'", cascade=(_NCCL,)),
        _raises("ModuleNotFoundError: No module named 'apex'"),
    ),
    "uncaught_error": tuple(_dies(code, *lines) for code, lines in UNCAUGHT),
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
        _dies(1, TRACE, FRAME, "RuntimeError: CUDA out of memory.", cascade=(_NCCL,)),
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
    "rank_lost": (_vanishes, _vanishes_and_others_wait, _vanishes_and_devices_spin),
    "unknown_exit": (_dies(3), _dies(1, "bye")),
    **GPU_FAULTS,
}
"""Makers of jobs with a fault, by the rule that the diagnosis must name as the root cause."""
FAULTS = {rule: (*makes, *([_worded(rule)] if rule in WORDINGS else ())) for rule, makes in FAULTS.items()}


COMPANIONS: Mapping[str, frozenset[str]] = {
    "load_imbalance_gpu": frozenset({"straggler_gpu", "gpu_busy_but_empty"}),
    "dataloader_starved": frozenset({"gpu_low_util", "gpu_fluctuating"}),
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
    **GPU_COMPANIONS,
}
"""Rules whose findings are correct beside the finding of a fault's own rule, by that rule.

For example, a device that is never used is also idle.
"""
CONSEQUENCES = frozenset({"nccl_timeout", "rank_lost", "hang_hw", "hang_log"})
"""Rules whose findings may follow from any fault, as long as they are not the root cause."""
