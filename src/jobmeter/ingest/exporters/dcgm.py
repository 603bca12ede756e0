"""dcgm-exporter, https://github.com/NVIDIA/dcgm-exporter.

Two kinds of metrics stay under their own names. Rates (PCIe and NVLink bytes of the profiling module) have no counter
in the catalogue. Times of violations have different units in different versions.
"""

import math
import re
from collections.abc import Mapping

from jobmeter.ingest.rule import MEBIBYTE, Rules, RuleTarget, TranslationRule

_NUMBERED = {"gpu": re.compile(r"\d{1,3}")}
_MEASURED = (-math.inf, 2.0**47 - 1)
"""Blank values of DCGM are 2^47 for floats, and close to 2^63 for whole numbers. Old exporters pass them on."""
_PERCENT = 0.01
_MHZ = 1e6

_FIELDS: Mapping[str, tuple[str, float]] = {
    "DEV_GPU_UTIL": ("gpu.utilization", _PERCENT),
    "DEV_ENC_UTIL": ("gpu.encoder.utilization", _PERCENT),
    "DEV_DEC_UTIL": ("gpu.decoder.utilization", _PERCENT),
    "DEV_FB_USED": ("gpu.memory.usage", MEBIBYTE),
    "DEV_FB_TOTAL": ("gpu.memory.limit", MEBIBYTE),
    "DEV_POWER_USAGE": ("gpu.power", 1.0),
    "DEV_POWER_MGMT_LIMIT": ("gpu.power.limit", 1.0),
    "DEV_TOTAL_ENERGY_CONSUMPTION": ("gpu.energy", 1e-3),
    "DEV_GPU_TEMP": ("gpu.temperature", 1.0),
    "DEV_MEMORY_TEMP": ("gpu.temperature.memory", 1.0),
    "DEV_SM_CLOCK": ("gpu.clock.sm", _MHZ),
    "DEV_MEM_CLOCK": ("gpu.clock.memory", _MHZ),
    "DEV_FAN_SPEED": ("gpu.fan", _PERCENT),
    "DEV_PSTATE": ("gpu.performance.state", 1.0),
    "DEV_ECC_SBE_VOL_TOTAL": ("gpu.ecc.corrected", 1.0),
    "DEV_ECC_DBE_VOL_TOTAL": ("gpu.ecc.uncorrected", 1.0),
    "DEV_CORRECTABLE_REMAPPED_ROWS": ("gpu.remapped.rows.correctable", 1.0),
    "DEV_UNCORRECTABLE_REMAPPED_ROWS": ("gpu.remapped.rows.uncorrectable", 1.0),
    "DEV_ROW_REMAP_PENDING": ("gpu.remapped.rows.pending", 1.0),
    "DEV_ROW_REMAP_FAILURE": ("gpu.remapped.rows.failed", 1.0),
    "DEV_PCIE_REPLAY_COUNTER": ("gpu.pcie.replay", 1.0),
    "DEV_PCIE_LINK_GEN": ("gpu.pcie.generation", 1.0),
    "DEV_PCIE_MAX_LINK_GEN": ("gpu.pcie.generation.limit", 1.0),
    "DEV_PCIE_LINK_WIDTH": ("gpu.pcie.width", 1.0),
    "DEV_PCIE_MAX_LINK_WIDTH": ("gpu.pcie.width.limit", 1.0),
    "PROF_GR_ENGINE_ACTIVE": ("gpu.graphics.active", 1.0),
    "PROF_SM_ACTIVE": ("gpu.sm.active", 1.0),
    "PROF_SM_OCCUPANCY": ("gpu.sm.occupancy", 1.0),
    "PROF_PIPE_TENSOR_ACTIVE": ("gpu.tensor.active", 1.0),
    "PROF_PIPE_FP64_ACTIVE": ("gpu.fp64.active", 1.0),
    "PROF_PIPE_FP32_ACTIVE": ("gpu.fp32.active", 1.0),
    "PROF_PIPE_FP16_ACTIVE": ("gpu.fp16.active", 1.0),
    "PROF_DRAM_ACTIVE": ("gpu.dram.active", 1.0),
}

RULES: Rules = {
    f"DCGM_FI_{theirs}": (
        TranslationRule(
            metric=ours,
            subject=RuleTarget.GPU,
            factor=factor,
            keep={"GPU_I_ID": "instance"},
            only=_NUMBERED,
            measured=_MEASURED,
        ),
    )
    for theirs, (ours, factor) in _FIELDS.items()
}
