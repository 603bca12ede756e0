"""AMD as a vendor of accelerators: its driver, its partitions, and the measures of its GPUs."""

from collections.abc import Sequence

from jobmeter.collect.accelerators.amd.device import UUID_PREFIX, AmdDevice
from jobmeter.collect.accelerators.amd.driver import AmdDriver
from jobmeter.collect.accelerators.amd.measures import MEASURES, SLOW_MEASURES
from jobmeter.collect.accelerators.vendor import DeviceHealth, Vendor
from jobmeter.collect.accelerators.visible import Numbered, VisibleVariable, parse_ordered_devices
from jobmeter.model.device import DeviceState, normalize_pci_address


def _check(device: AmdDevice) -> DeviceHealth:
    """Read memory errors, and the temperatures that reach their critical value."""
    values: dict[str, float] = {}
    errors, warnings = [], []
    counts = device.count_errors()
    if "ue" in counts:
        values["ecc_uncorrected"] = float(counts["ue"])
        errors += [f"{counts['ue']} memory errors were not corrected"] if counts["ue"] else []
    for name in ("edge", "junction", "mem"):
        heat, critical = (device.read_sensor(f"{prefix}temperature {name}") for prefix in ("", "critical "))
        if heat is not None:
            values[f"temperature_{name}"] = heat / 1_000
            if critical and heat >= critical:
                warnings.append(f"its temperature ({name}) is {heat // 1_000} °C")
    device.answer(values or {"answers": 1.0})
    return DeviceHealth(values, errors, warnings)


def _parse_rocr_list(text: str, devices: Sequence[Numbered]) -> list[int]:
    """Return the devices that a list of ROCr names. ROCr counts the partitions of a GPU instead of the GPU."""
    divided = {device.part.parent for device in devices if device.part is not None}
    computing = [device for device in devices if device.part is not None or device.index not in divided]
    return parse_ordered_devices(text, computing, uuid_prefix=UUID_PREFIX)


VENDOR = Vendor(
    name="amd",
    title="AMD",
    noun="GPU",
    source="the driver amdgpu",
    prefix="gpu",
    open=AmdDriver,
    measures=MEASURES,
    slow_measures=SLOW_MEASURES,
    check=_check,
    # https://docs.kernel.org/admin-guide/devices.html: the render nodes of all GPUs.
    device_numbers={226: range(128, 192)},
    device_files="/dev/kfd",
    driver_folder="driver/amdgpu",
    pci_driver="amdgpu",
    unit_devices=(),  # its files in /sys are enough
    domain="amd.com",
    uuid_of_id=lambda text: normalize_pci_address(text) or text,
    id_of_part=lambda part: part.plugin_id,
    # https://rocm.docs.amd.com/en/latest/conceptual/gpu-isolation.html: HIP counts within ROCr's devices.
    variables=(
        VisibleVariable("HIP_VISIBLE_DEVICES", _parse_rocr_list, relative=True, within="ROCR_VISIBLE_DEVICES"),
        VisibleVariable(
            "CUDA_VISIBLE_DEVICES", _parse_rocr_list, relative=True, within="ROCR_VISIBLE_DEVICES", shared=True
        ),
        VisibleVariable("GPU_DEVICE_ORDINAL", _parse_rocr_list, relative=True, within="ROCR_VISIBLE_DEVICES"),
        VisibleVariable("ROCR_VISIBLE_DEVICES", _parse_rocr_list, relative=True),
    ),
    uuid_prefix=UUID_PREFIX,
    advice={DeviceState.LOST: "see the kernel's log for amdgpu, and reset or replace it"},
    help="see `amd-smi list` and the kernel's log for amdgpu",
    recovery="See the kernel's log for amdgpu, and reset or replace it.",
)
