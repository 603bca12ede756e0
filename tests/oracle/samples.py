"""Input samples of questions: the GPU pods of GenTD26 if available, otherwise generated ones; and odd cases."""

import os
import tarfile
from functools import lru_cache
from pathlib import Path

import numpy as np
import pandas as pd
from tests.oracle.expected import SERIES, number_keys

from jobmeter.model.batch import SampleBatch
from jobmeter.model.series import Series
from jobmeter.model.time import HOUR, MINUTE, SECOND

JOB = "gentd26"
FILES = {
    "gpu.utilization": ("pod_gpu_duty_cycle_anon", 0.01),
    "gpu.memory.usage": ("pod_gpu_memory_used_bytes_anon", 1.0),
    "memory.utilization": ("pod_memory_util_anon", 1.0),
}
START = 1_662_858_720_000
INTERVAL = 57 * SECOND


def folder() -> Path | None:
    """Return the folder of the real samples from ``JOBMETER_GENTD26``; None if they are missing."""
    place = Path(os.environ.get("JOBMETER_GENTD26", ""))
    return place if (place / "pod_gpu_duty_cycle_anon.tgz").exists() else None


@lru_cache(maxsize=1)
def fleet() -> pd.DataFrame:
    """Return a day of GPU pods as one job, with a replica and one GPU for each pod."""
    place = folder()
    frames = [
        (_real(place, name, factor) if place else _made(metric)).assign(metric=metric)
        for metric, (name, factor) in FILES.items()
    ]
    samples = pd.concat(frames, ignore_index=True)
    device = np.where(samples["metric"].str.startswith("gpu."), "gpu0", "")
    return samples.assign(
        project="default", job=JOB, attempt=0, device=device, labels=pd.Series([()] * len(samples), dtype=object)
    )


def _real(place: Path, name: str, factor: float) -> pd.DataFrame:
    with tarfile.open(place / f"{name}.tgz") as archive:
        inner = archive.extractfile(f"{name}.csv")
        assert inner is not None
        # A few rows of the published files lack the pod.
        table = pd.read_csv(inner).dropna()
    pod = table["container_ip"].str[:8]
    return pd.DataFrame(
        {
            "replica": "pod-" + pod,
            "node": "node-" + pod.str[:1],
            "time": (table["timestamp_anon"] * 1000).astype("int64"),
            "value": np.round(table["value"] * factor, 12),
        }
    ).reset_index(drop=True)


def _made(metric: str, pods: int = 144) -> pd.DataFrame:
    """Generate points 57 s apart, with gaps, and pods that start and end."""
    random = np.random.default_rng(len(metric))
    parts = []
    for pod in range(pods):
        first = START + int(random.integers(0, 12)) * HOUR
        time = np.arange(first, START + 23 * HOUR, INTERVAL)
        time = time[random.random(len(time)) > 0.1]
        value = np.round(random.random(len(time)) * (8e10 if metric.endswith("usage") else 1.0), 4)
        parts.append(
            pd.DataFrame({"replica": f"worker-{pod}", "node": f"node-{pod // 8}", "time": time, "value": value})
        )
    return pd.concat(parts, ignore_index=True)


def batches(samples: pd.DataFrame, random: np.random.Generator | None = None, rows: int = 50_000) -> list[SampleBatch]:
    """Return the samples as they could arrive: in order, or in groups that ``random`` shuffles and partly repeats."""
    if random is None:
        return [batch(samples.iloc[at : at + rows]) for at in range(0, len(samples), rows)]
    order = random.permutation(len(samples))
    cuts = np.sort(random.integers(0, len(order) + 1, 6))
    groups = [group for group in np.split(order, cuts) if len(group)]
    again = [np.concatenate([group[::2], groups[0][::3]]) for group in groups[::2]]
    return [batch(samples.iloc[group]) for group in [*groups, *again]]


def batch(samples: pd.DataFrame) -> SampleBatch:
    """Return some samples as columns, in their order."""
    codes, names = number_keys(samples[SERIES])
    series = [Series(**dict(zip(SERIES, name, strict=True))) for name in names]
    return SampleBatch(
        series,
        codes.astype(np.uint32),
        samples["time"].to_numpy(np.int64),
        samples["value"].to_numpy(np.float64),
    )


def odd_cases(seed: int) -> pd.DataFrame:
    """Return two jobs that share a node, a device and a replica name, with restarts, resets, gaps and labelled series.

    ``worker-5`` restarts on another node, and later on that node with other and more devices.
    """
    random = np.random.default_rng(seed)
    start = START - START % HOUR + 10 * HOUR
    rows: list[tuple[object, ...]] = []

    def add(
        metric: str,
        job: str,
        replica: str,
        attempt: int,
        device: str,
        labels: object,
        first: int,
        last: int,
        *,
        node: str = "n1",
    ) -> None:
        interval = int(random.choice([7, 15, 57, 130])) * SECOND
        time = np.arange(start + first * MINUTE + int(random.integers(0, 60_000)), start + last * MINUTE, interval)
        time = time + random.integers(0, 900, len(time))
        gap = random.integers(first, last) * MINUTE + start
        time = time[(random.random(len(time)) > 0.15) & ((time < gap) | (time > gap + 9 * MINUTE))]
        value = _readings(metric, len(time), random)
        rows.extend(
            (metric, "default", job, replica, attempt, node, device, labels, int(t), v)
            for t, v in zip(time, value, strict=True)
        )

    for job in ("a", "b"):
        add("gpu.utilization", job, "worker-0", 0, "gpu0", (), 0, 200)
        for replica, attempts in (
            ("worker-0", [(0, 95), (99, 200)]),
            ("worker-10", [(20, 180)]),
            ("worker-2", [(0, 70)]),
        ):
            for attempt, (first, last) in enumerate(attempts):
                add("cpu.time", job, replica, attempt, "", (), first, last)
                add("memory.usage", job, replica, attempt, "", (), first, last)
                for interface in ("eth0", "ib0"):
                    add("network.receive", job, replica, attempt, "", (("interface", interface),), first, last)
        for replica in ("worker-0", "worker-10"):
            add("memory.limit", job, replica, 0, "", (), 0, 190)
        add("cpu.usage", job, "worker-2", 0, "", (), 0, 60)
        add("gpu.memory.usage", job, "worker-0", 0, "gpu0", (), 0, 190)
        add("gpu.memory.usage", job, "worker-0", 0, "gpu1", (), 0, 190)
        add("gpu.memory.limit", job, "worker-0", 0, "gpu0", (), 0, 190)
        add("gpu.memory.limit", job, "worker-0", 0, "gpu1", (), 30, 150)
        stays = [("n2", "gpu0 gpu1", 0, 61), ("n3", "gpu0 gpu1", 63, 118), ("n3", "gpu1 gpu2 gpu3", 121, 160)]
        stays.append(("n2", "gpu3", 160, 200))
        for attempt, (node, devices, first, last) in enumerate(stays):
            for device in devices.split():
                for metric in ("gpu.utilization", "gpu.power", "gpu.energy", "gpu.memory.usage", "gpu.memory.limit"):
                    add(metric, job, "worker-5", attempt, device, (), first, last, node=node)
    add("gpu.memory.utilization", "b", "worker-0", 0, "gpu1", (), 0, 190)
    add("gpu.energy", "a", "worker-0", 0, "gpu0", (), 0, 200)
    samples = pd.DataFrame(rows, columns=[*SERIES, "time", "value"])
    # Write some samples first with other values; the later write wins.
    stale = samples.sample(frac=0.05, random_state=seed)
    return pd.concat([stale.assign(value=0.25), samples], ignore_index=True)


def _readings(metric: str, count: int, random: np.random.Generator) -> np.ndarray:
    if metric in ("cpu.time", "network.receive", "gpu.energy"):
        value = np.cumsum(np.round(random.random(count) * 40, 3))
        for at in random.integers(0, max(count, 1), 2):
            value[at:] -= value[at] - random.random() * 5 if count else 0.0
        return np.maximum(value, 0.0)
    return np.round(random.random(count) + 0.01, 4)
