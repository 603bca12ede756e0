"""Slurm's trackable resources: ``cpu=4,mem=200M,node=2,gres/gpu:h200=4``."""

from dataclasses import dataclass

from jobmeter.collect.text import parse_whole_number

_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40, "P": 2**50}


@dataclass(frozen=True, slots=True)
class TresResources:
    """CPUs, bytes of memory, GPUs and their type; None or empty if not given."""

    cpus: int | None = None
    memory: int | None = None
    gpus: int | None = None
    gpu_type: str = ""


def parse_tres(text: str) -> TresResources:
    """Parse a list of resources."""
    cpus = memory = gpus = typed = None
    kind = ""
    for part in text.split(","):
        name, _, value = part.partition("=")
        if name == "cpu":
            cpus = parse_whole_number(value, 15)
        elif name == "mem":
            memory = _bytes(value)
        elif name == "gres/gpu":
            gpus = parse_whole_number(value, 15)
        elif name.startswith("gres/gpu:"):
            kind, typed = name.partition(":")[2], (typed or 0) + (parse_whole_number(value, 15) or 0)
    return TresResources(cpus, memory, gpus if gpus is not None else typed, kind)


def _bytes(text: str) -> int | None:
    unit = _UNITS.get(text[-1:].upper())
    try:
        amount = float(text[:-1] if unit else text)
    except ValueError:
        return None
    # Without a unit Slurm means megabytes.
    return int(amount * (unit or _UNITS["M"])) if 0 <= amount < 2**53 else None
