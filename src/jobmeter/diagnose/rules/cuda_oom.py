"""Memory of a device ran out."""

from jobmeter.diagnose.causes import Cause

RULE = Cause(
    name="cuda_oom",
    sees="An allocation of device memory failed.",
    advice=(
        "Smaller batches, gradient checkpointing or sharding; look at gpu_mem_leak, and at who else is on the device."
    ),
    lines=(
        "CUDA out of memory",
        "CUBLAS_STATUS_ALLOC_FAILED",
        "CUDA error: out of memory",
        "CUDA_ERROR_OUT_OF_MEMORY",
        "cudaErrorMemoryAllocation",
        "HIP out of memory",
        "NPU out of memory",
        "RESOURCE_EXHAUSTED: Out of memory",
        r"torch\.(?:cuda\.)?OutOfMemoryError",
    ),
    running=True,
).rule
