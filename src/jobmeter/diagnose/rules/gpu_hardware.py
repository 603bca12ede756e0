"""A device is broken."""

from jobmeter.diagnose.causes import Cause

RULE = Cause(
    name="gpu_hardware",
    title="GPU hardware",
    sees="An error of a device's hardware ended a replica.",
    advice="Take the device out of service and start again on another; see xid and ecc_uncorrected.",
    lines=(
        "uncorrectable ECC error",
        "fallen off the bus",
        "GPU is lost",
        "hardware error was detected",
        "CUDA error: (?:hardware stack error|uncorrectable)",
        "cudaErrorECCUncorrectable",
        r"Xid[^\n]{0,60}: (?:48|62|63|64|74|79|92|94|95|119|120|140)\b",
        "row remapping failure",
        "device-side hardware",
        "cudaErrorHardwareStackError",
        "cudaErrorNvlinkUncorrectable|Uncorrectable NVLink error",
        "Unable to determine the device handle for GPU",
        "GPU requires reset|GPU has fallen",
        "NVML_ERROR_GPU_IS_LOST",
        r"(?:HBM|SRAM|DRAM).{0,40}(?:uncorrectable|double.bit)",
        "CUDA error: unspecified launch failure.{0,60}ECC",
        "HW Exception by GPU node",
    ),
    running=True,
).rule
