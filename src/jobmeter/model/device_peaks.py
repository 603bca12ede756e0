"""Peak arithmetic of accelerators, without sparsity, for the utilization of their floating-point units (MFU).

Numbers are from the vendors' data sheets, in 1e12 operations a second, for one device as its driver counts.
"""

import re
from typing import NamedTuple

TERA = 1e12


class DevicePeak(NamedTuple):
    """Row of the table. ``product`` is a pattern of the driver's product name; a peak of 0 is unknown or absent."""

    product: str
    bf16: float
    fp8: float
    fp16: float
    source: str


_NVIDIA = "https://www.nvidia.com/en-us/data-center"
_AMD = "https://www.amd.com/en/products/accelerators/instinct"
_H100, _H200 = f"{_NVIDIA}/h100/", f"{_NVIDIA}/h200/"
_A100 = f"{_NVIDIA}/a100/"
_V100 = f"{_NVIDIA}/v100/"
_ADA = "https://images.nvidia.com/aem-dam/Solutions/geforce/ada/nvidia-ada-gpu-architecture.pdf"
_AMPERE = "https://www.nvidia.com/content/PDF/nvidia-ampere-ga-102-gpu-architecture-whitepaper-v2.pdf"

PEAKS: tuple[DevicePeak, ...] = (
    # Data sheets of NVIDIA that state values with sparsity are halved.
    DevicePeak(r"\bB200\b", 2_250.0, 4_500.0, 2_250.0, f"{_NVIDIA}/dgx-b200/"),
    DevicePeak(r"\bH200 NVL\b", 835.5, 1_670.5, 835.5, _H200),
    DevicePeak(r"\b(?:H200|GH200)\b", 989.5, 1_979.0, 989.5, _H200),
    DevicePeak(r"\bH100 NVL\b", 835.5, 1_670.5, 835.5, _H100),
    DevicePeak(r"\bH100 PCIe\b", 756.5, 1_513.0, 756.5, f"{_H100} (data sheet of 2022)"),
    DevicePeak(r"\bH(?:100|800)\b", 989.5, 1_979.0, 989.5, _H100),
    DevicePeak(r"\bA(?:100|800)\b", 312.0, 0.0, 312.0, _A100),
    DevicePeak(r"\bA30\b", 165.0, 0.0, 165.0, f"{_NVIDIA}/products/a30-gpu/"),
    DevicePeak(r"\bA10\b", 125.0, 0.0, 125.0, f"{_NVIDIA}/products/a10-gpu/"),
    DevicePeak(r"\bA40\b", 149.7, 0.0, 149.7, f"{_NVIDIA}/a40/"),
    DevicePeak(r"\bL40S\b", 362.0, 733.0, 362.0, f"{_NVIDIA}/l40s/"),
    DevicePeak(r"\bL40\b", 181.0, 362.0, 181.0, f"{_NVIDIA}/l40/"),
    DevicePeak(r"\bL4\b", 121.0, 242.5, 121.0, f"{_NVIDIA}/l4/"),
    DevicePeak(r"\bV100-?S?-PCIE\b", 0.0, 0.0, 112.0, _V100),
    DevicePeak(r"\bV100\b", 0.0, 0.0, 125.0, _V100),
    DevicePeak(r"\bT4\b", 0.0, 0.0, 65.0, f"{_NVIDIA}/tesla-t4/"),
    DevicePeak(r"\bRTX 4090\b", 165.2, 330.3, 165.2, _ADA),
    DevicePeak(r"\bRTX 3090(?! Ti)\b", 71.0, 0.0, 71.0, _AMPERE),
    DevicePeak(r"\bMI3(?:00X|25X)\b", 1_307.4, 2_614.9, 1_307.4, f"{_AMD}/mi300/mi300x.html"),
    DevicePeak(r"\bMI300A\b", 980.6, 1_961.2, 980.6, f"{_AMD}/mi300/mi300a.html"),
    # Two devices to a card.
    DevicePeak(r"\bMI250X\b", 191.5, 0.0, 191.5, f"{_AMD}/mi200/mi250x.html"),
    DevicePeak(r"\bMI250\b", 181.0, 0.0, 181.0, f"{_AMD}/mi200/mi250.html"),
    DevicePeak(r"\bMI210\b", 181.0, 0.0, 181.0, f"{_AMD}/mi200/mi210.html"),
)
"""Peaks by product, more specific patterns first."""


def find_peak_flops(product: str, precision: str = "bf16") -> float | None:
    """Return the operations a second of a device in a precision: ``bf16``, ``fp16`` or ``fp8``. None: unknown."""
    row = next((one for one in PEAKS if re.search(one.product, product)), None)
    if row is None or precision not in {"bf16", "fp16", "fp8"}:
        return None
    peak: float = getattr(row, precision)
    # A device without bfloat16 computes its programs in half precision.
    peak = peak or (row.fp16 if precision == "bf16" else 0.0)
    return peak * TERA or None
