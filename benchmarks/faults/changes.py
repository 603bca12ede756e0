"""Makers of generated jobs with a fault: a healthy job, and changes to the whole job or to some of its members."""

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from benchmarks.faults.build import USUAL, JobShape, Made, training
from jobmeter.model.time import MINUTE, SECOND


class Fault(Protocol):
    """Maker of a job, with a fault or healthy."""

    def __call__(self, random: np.random.Generator, shape: JobShape = USUAL) -> Made:
        """Return a job of the shape."""
        ...


TRACE = "Traceback (most recent call last):"
FRAME = '  File "train.py", line 12, in <module>'

Change = Callable[[Made, str, str], None]
"""Function that changes one member of a job, given by replica and device. An empty device is the replica itself."""


def whole(base: Fault) -> Callable[[Callable[[Made], None]], Fault]:
    """Return a decorator that makes a maker of jobs from a change to a job of ``base``."""

    def fault(change: Callable[[Made], None]) -> Fault:
        def make(random: np.random.Generator, shape: JobShape = USUAL) -> Made:
            made = base(random, shape)
            change(made)
            return made

        return make

    return fault


def _members(base: Fault, members: Callable[[Made], Sequence[tuple[str, str]]], change: Change, *, only: bool) -> Fault:
    @whole(base)
    def fault(made: Made) -> None:
        every = members(made)
        for replica, device in [every[int(made.random.integers(len(every)))]] if only else every:
            change(made, replica, device)

    return fault


def devices(change: Change, *, only: bool = False) -> Fault:
    """Return a maker of training jobs with a change to all devices, or, with ``only``, to a random one."""
    return _members(training, lambda made: made.gpus, change, only=only)


def replicas(base: Fault, change: Change, *, only: bool = False) -> Fault:
    """Return a maker of jobs of ``base`` with a change to all replicas, or, with ``only``, to a random one."""
    return _members(base, lambda made: [(name, "") for name in made.names], change, only=only)


def set_level(metric: str, mean: float, spread: float, *, always: bool = False) -> Change:
    """Return a change that sets a series to another level.

    A series that the job already has changes from the onset of the fault on, with ``always`` from its start.
    """

    def change(made: Made, replica: str, device: str) -> None:
        value = made.noise(mean, spread)
        before = made.series.get((metric, replica, device))
        if before is None and metric in _PROFILED and not always:
            return  # the devices of this job lack profiling counters
        if before is not None and not always:
            first = made.begin(made.shape.onset)
            value[:first] = before[:first]
        made.series[metric, replica, device] = value

    return change


_PROFILED = frozenset({"gpu.sm.active", "gpu.tensor.active"})


def scale_level(metric: str, factor: float) -> Change:
    """Return a change that multiplies a series by ``factor`` from the onset of the fault on."""

    def change(made: Made, replica: str, device: str) -> None:
        own = made.series.get((metric, replica, device))
        if own is not None:
            own[made.begin(made.shape.onset) :] *= factor

    return change


def change_all(*changes: Change) -> Change:
    """Return a change that applies all of ``changes``."""

    def change(made: Made, replica: str, device: str) -> None:
        for one in changes:
            one(made, replica, device)

    return change


def kernel_lines(*texts: str) -> Fault:
    """Return a maker of training jobs on a node whose kernel logs ``texts``, some seconds apart."""

    @whole(training)
    def fault(made: Made) -> None:
        at = int(made.random.integers(20, 90)) * MINUTE
        for number, text in enumerate(texts):
            made.say_kernel(text, at + number * int(made.random.integers(1, 9)) * SECOND)

    return fault
