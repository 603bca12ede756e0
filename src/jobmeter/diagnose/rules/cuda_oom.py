"""Memory of a device ran out."""

from jobmeter.diagnose.causes import Cause

RULE = Cause(
    name="cuda_oom",
    title="GPU out of memory",
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
        "(?:RESOURCE_EXHAUSTED|ResourceExhausted(?:Error)?):.{0,40}(?:Out of memory|OOM when allocating)",
        "OOM when allocating tensor",
        "CUDNN_STATUS_ALLOC_FAILED",
        "hipErrorOutOfMemory",
        r"Cuda failure (?:2 )?'?out of memory",
        r"(?:cudaMalloc|cuMemCreate|cuMemAlloc|hipMalloc)\w*[^\n]{0,60}out of memory",
        "NVML_SUCCESS == r INTERNAL ASSERT FAILED",
        "No available memory for the cache blocks",
        r"torch\.(?:cuda\.)?OutOfMemoryError",
    ),
    running=True,
).rule
