"""Healthy jobs of different kinds, in which no rule may have a finding."""

from collections.abc import Mapping

import numpy as np

from benchmarks.faults.build import GIB, START, Made, batch, training
from benchmarks.faults.changes import FRAME, TRACE, Fault, kernel_lines, whole
from benchmarks.faults.gpu_faults import GPU_CLEAN
from benchmarks.faults.shortages import NEAR_MISSES
from jobmeter.model.event import Level
from jobmeter.model.job import JobState
from jobmeter.model.time import MINUTE, SECOND


@whole(batch)
def _full_machine(made: Made) -> None:
    """Let all replicas alike get little CPU and wait for more."""
    made.put("cpu.usage", lambda: made.noise(0.1, 0.05))
    made.put("cpu.utilization", lambda: made.noise(0.05, 0.02))
    made.put("pressure.cpu", lambda: np.minimum(made.noise(0.4, 0.15), 1.0))


@whole(batch)
def _plateau(made: Made) -> None:
    """Let memory grow until caches are full, and not further."""
    for name in made.names:
        made.series["memory.usage", name, ""] += 20 * GIB * (1 - np.exp(-(made.time - START) / (400 * SECOND)))


@whole(batch)
def _sawtooth(made: Made) -> None:
    """Let memory grow within each epoch and fall at its end."""
    for name in made.names:
        made.series["memory.usage", name, ""] += 10 * GIB * ((made.time - START) % (450 * SECOND)) / (450 * SECOND)


@whole(training)
def _waves(made: Made) -> None:
    """Pause devices for checkpoints and evaluation."""
    for key, value in made.series.items():
        if key[0] in {"gpu.utilization", "gpu.sm.active", "gpu.power", "gpu.tensor.active"}:
            value[(made.time - START) % (600 * SECOND) < 50 * SECOND] *= 0.1


@whole(batch)
def _uneven(made: Made) -> None:
    """Give half of the replicas less work, as some programs do by design."""
    for rank, name in enumerate(made.names):
        made.series["cpu.usage", name, ""] *= 1.0 if rank % 2 else 0.45


@whole(training)
def _short(made: Made) -> None:
    """End the job after five minutes, too early for a judgement."""
    count = int(np.searchsorted(made.time, START + 5 * MINUTE))
    made.series = {key: value[:count] for key, value in made.series.items()}
    made.nodes, made.length, made.state = {}, 5 * MINUTE, JobState.SUCCEEDED
    made.last_sample = int(made.time[count - 1])
    made.lines = made.lines[:5]


@whole(batch)
def _caught(made: Made) -> None:
    """Log exceptions that the program caught, in a job that succeeds."""
    for text in (TRACE, FRAME, "ConnectionResetError: [Errno 104] Connection reset by peer", "trying again"):
        made.say(text, 20 * MINUTE, level=Level.ERROR)
    made.say("RuntimeError: CUDA out of memory. (caught, halving the batch)", 21 * MINUTE, level=Level.WARNING)
    made.state = JobState.SUCCEEDED


@whole(training)
def _talks_of_faults(made: Made) -> None:
    """Let the job print texts of faults, as a monitor of other machines would."""
    for text in (
        "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, GPU has fallen off the bus.",
        "Out of memory: Killed process 4711 (python) total-vm:9kB",
        "OSError: [Errno 28] No space left on device",
        "mlx5_5: Port: 1 Link DOWN",
    ):
        made.say(text, 20 * MINUTE, level=Level.ERROR)


@whole(training)
def _done(made: Made) -> None:
    made.state = JobState.SUCCEEDED


_boots = kernel_lines(
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
    **GPU_CLEAN,
    **NEAR_MISSES,
}
"""Makers of healthy jobs by name. No rule may have a finding in them."""
