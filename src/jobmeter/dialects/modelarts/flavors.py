"""Instance types as ModelArts' flavors."""

from typing import Any

from jobmeter.model.job import InstanceType

CPU, GPU, ASCEND = "CPU", "GPU", "Ascend"
TYPES = (CPU, GPU, ASCEND)
_ASCEND = ("ascend", "snt", "npu")
_UNITS = (("GB", 2**30), ("MB", 2**20), ("KB", 2**10))


def choose_flavor_type(kind: InstanceType) -> str:
    """Return CPU, GPU or Ascend, by the accelerator's name."""
    if any(word in kind.gpu_type.casefold() for word in _ASCEND):
        return ASCEND
    return GPU if kind.gpu_count or kind.gpu_type else CPU


def make_flavor_info(kind: InstanceType) -> dict[str, Any]:
    """Return the known resources of the machine."""
    info: dict[str, Any] = {}
    if kind.cpu is not None:
        info["cpu"] = {"core_num": int(kind.cpu) if kind.cpu.is_integer() else kind.cpu}
    accelerator = _accelerator(kind)
    if accelerator:
        info["npu" if choose_flavor_type(kind) == ASCEND else "gpu"] = accelerator
    if kind.memory is not None:
        size, unit = _size(kind.memory)
        info["memory"] = {"size": size, "unit": unit}
    return info


def _accelerator(kind: InstanceType) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if kind.gpu_count:
        found["unit_num"] = str(kind.gpu_count) if choose_flavor_type(kind) == ASCEND else kind.gpu_count
    if kind.gpu_type:
        found["product_name"] = kind.gpu_type
    if found and kind.gpu_memory is not None:
        found["memory"] = "{}{}".format(*_size(kind.gpu_memory))
    return found


def _size(size: int) -> tuple[int, str]:
    """Return bytes in the largest of Huawei's units (powers of 1024) in which they are a whole number."""
    return next(((size // factor, unit) for unit, factor in _UNITS if size % factor == 0), (size, "B"))
