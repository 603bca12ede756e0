"""MIG instance of a GPU: its memory, processes and GPM metrics. The rest is measured for the GPU."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from jobmeter.collect.accelerators.device import EndedUse
from jobmeter.collect.accelerators.nvidia.device import MigInstance, PynvmlDevice, Session
from jobmeter.collect.accelerators.nvidia.readings import Field, NvmlError, Reading
from jobmeter.collect.accelerators.visible import Partition
from jobmeter.model.time import Clock

_EACH = 10_000
"""Distance between the numbers of the instances of two GPUs."""
_PLACES = 100


def compute_number(part: Partition) -> int:
    """Return the number of an instance, which no GPU and no other instance has."""
    return (part.parent + 1) * _EACH + part.instance * _PLACES + part.place


class MigDevice(PynvmlDevice):
    """MIG instance. The object is reused while the instance lives; ``adopt`` gives it a session's handle."""

    def __init__(self, found: MigInstance, parent: PynvmlDevice, clock: Clock) -> None:
        super().__init__(compute_number(found.part), clock)
        self._parent = parent
        self.part = found.part
        self.uuid, self.name = found.uuid, found.name
        self._sharing = frozenset({found.part.place})

    def adopt(self, session: Session, found: MigInstance, sharing: frozenset[int]) -> None:
        """Take the handle of the instance, unless the instance has a handle of this session. No call may be running.

        ``sharing`` are the places of the compute instances in its GPU instance.
        """
        self._sharing = sharing
        self.details = {
            **{name: value for name, value in self._parent.details.items() if name in {"vendor", "driver"}},
            "parent": found.part.uuid,
            "slices": found.slices,
            "memory": found.memory,
        }
        if not self.attached:
            self._session, self.handle = session, found.handle

    def read(self, reading: Reading) -> Sequence[float]:
        """Return the numbers of a reading: memory alone.

        Compute instances of one GPU instance share its memory. Each reports the memory of its processes as used, and
        the first one reports the total.
        """
        if reading is not Reading.MEMORY:
            raise NvmlError("it is measured for the whole GPU")
        used, total = super().read(reading)
        if len(self._sharing) == 1:
            return used, total
        own = [process.memory for process in self.list_processes()]
        if None in own:
            raise NvmlError("the memory of its processes is unknown")
        is_first = self.part is not None and self.part.place == min(self._sharing)
        return (sum(filter(None, own)), total)[: 1 + is_first]

    def read_fields(self, requested: Sequence[Field]) -> Mapping[Field, float]:  # noqa: ARG002 - the form of PynvmlDevice
        """Raise NvmlError: fields are measured for the whole GPU."""
        raise NvmlError("it is measured for the whole GPU")

    def list_links(self) -> Sequence[int]:
        """Return no NVLinks: they are measured for the whole GPU."""
        return ()

    def read_structure(self, kind: str, function: str) -> Any:  # noqa: ANN401, ARG002 - the form of PynvmlDevice
        """Raise NvmlError: structures are read for the whole GPU."""
        raise NvmlError("it is measured for the whole GPU")

    def process_utilization(self) -> Mapping[int, float] | None:
        """Raise NvmlError: NVML gives no shares of time on an instance."""
        raise NvmlError("it is not measured on an instance")

    def list_ended_uses(self, pids: Collection[int]) -> Sequence[EndedUse]:  # noqa: ARG002 - the form of Accelerator
        """Return no use: the driver does not account for processes on GPUs with MIG."""
        return ()

    def _is_profiled(self) -> bool:
        return bool(self._call_library(self._module.nvmlGpmQueryDeviceSupport, self._parent.handle).isSupportedDevice)

    def _take(self, sample: Any) -> None:  # noqa: ANN401 - the module has no types
        instance = self.part.instance if self.part else 0
        self._call_library(self._module.nvmlGpmMigSampleGet, self._parent.handle, instance, sample)
        self.note_answer()
