"""Cores that this process may use."""

import os
from pathlib import Path

_FILES = Path("/")


def count_cores(files: Path = _FILES) -> int:
    """Return the cores of the CPU affinity, or the whole cores of a lower quota of the process's control groups.

    ``files`` is the folder in which ``proc`` and ``sys`` are. Quotas of version 2 count. The result is at least 1.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    top = files / "sys/fs/cgroup"
    group = _read(files / "proc/self/cgroup").rpartition("0::/")[2].strip()
    quotas = (_read(folder / "cpu.max").split() for folder in (top / group, *(top / group).parents))
    limits = [int(words[0]) // int(words[1]) for words in quotas if len(words) == 2 and words[0] != "max"]
    return max(1, min([cores, *limits]))


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
