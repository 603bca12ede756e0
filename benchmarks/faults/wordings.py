"""Last lines of failed programs, in the words of PyTorch, NCCL, JAX, Slurm, Kubernetes, shells and the kernel.

The fields ``{n}`` (a number), ``{rank}``, ``{path}`` and ``{host}`` get random values. A line that starts with the
class of an exception comes after a traceback, the others without one.
"""

from collections.abc import Mapping

import numpy as np

WORDINGS: Mapping[str, tuple[str, ...]] = {
    "cuda_oom": (
        # https://github.com/pytorch/pytorch/blob/main/c10/cuda/CUDACachingAllocator.cpp
        (
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {n}.00 MiB. GPU {rank} has a total "
            "capacity of 79.11 GiB of which 33.44 MiB is free."
        ),
        "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate {n}.00 MiB (GPU {rank}; 39.39 GiB total)",
        "RuntimeError: CUDA out of memory. Tried to allocate {n}.00 GiB (GPU 0; 15.90 GiB total capacity)",
        "RuntimeError: CUDA error: out of memory",
        "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "torch.OutOfMemoryError: HIP out of memory. Tried to allocate {n}.00 GiB. GPU {rank} has a total capacity of",
        "RuntimeError: NPU out of memory. Tried to allocate {n}.00 MiB (NPU {rank}; 60.97 GiB total capacity)",
        # https://github.com/openxla/xla
        "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate {n} bytes.",
        # https://github.com/tensorflow/tensorflow
        "tensorflow.python.framework.errors_impl.ResourceExhaustedError: OOM when allocating tensor with shape[{n},9]",
        # https://github.com/vllm-project/vllm
        "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`.",
    ),
    "nccl_timeout": (
        # https://github.com/pytorch/pytorch/blob/main/torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp
        (
            "[rank{rank}]:[E1124 10:11:12.{n} ProcessGroupNCCL.cpp:629] [Rank {rank}] Watchdog caught collective "
            "operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600029 "
            "milliseconds before timing out."
        ),
        "[E ProcessGroupNCCL.cpp:475] [Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(OpType=ALL)",
        (
            "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1970, remote process exited or "
            "there was a network error, NCCL version 2.21.5"
        ),
        "RuntimeError: NCCL communicator was aborted on rank {rank}.",
        "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.",
        # https://github.com/pytorch/gloo
        "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.3]:{n}",
        (
            "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting "
            "1800000ms for recv operation to complete"
        ),
    ),
    "nan_loss": (
        "ValueError: loss is nan at step {n}",
        "RuntimeError: Loss is nan, stopping training",
        "FloatingPointError: Minimum loss scale reached (0.0001). Your loss is probably exploding.",
        # https://github.com/pytorch/pytorch/blob/main/torch/autograd/anomaly_mode.py
        "RuntimeError: Function 'PowBackward0' returned nan values in its 0th output.",
        "epoch {rank} step {n} train_loss: nan lr 0.1, stopping",
        "ValueError: The loss became NaN: train/loss = nan",
        "step={n} loss=nan grad_norm=nan",
        "ValueError: detected inf or nan values in `gradients`: non-finite grad found",
        # https://github.com/deepspeedai/DeepSpeed
        "Exception: Current loss scale already at minimum - cannot decrease scale anymore. Exiting run.",
    ),
    "config_error": (
        "train.py: error: unrecognized arguments: --lr-{n}",
        "train.py: error: the following arguments are required: --data",
        "train.py: error: argument --epochs: invalid int value: '{path}'",
        "train.py: error: argument --model: invalid choice: 'x{n}' (choose from 'a', 'b')",
        # https://github.com/pallets/click
        "Error: No such option: --lr{n}",
        "Error: Missing option '--data'.",
        "Error: Invalid value for '--epochs': 'x' is not a valid integer.",
        "omegaconf.errors.ConfigAttributeError: Key 'lr{n}' is not in struct",
        "hydra.errors.ConfigCompositionException: Could not override 'model.lr'.",
        "yaml.scanner.ScannerError: mapping values are not allowed here",
        "tomllib.TOMLDecodeError: Invalid value (at line {n}, column 3)",
        "pydantic_core._pydantic_core.ValidationError: {n} validation errors for Config",
        "configparser.NoSectionError: No section: 'train'",
    ),
    "file_missing": (
        "FileNotFoundError: [Errno 2] No such file or directory: '{path}'",
        "python: can't open file '{path}': [Errno 2] No such file or directory",
        "sh: 1: train{n}: not found",
        "bash: line 1: torchrunn: command not found",
        "cat: {path}: No such file or directory",
        "NotADirectoryError: [Errno 20] Not a directory: '{path}'",
    ),
    "permission_denied": (
        "PermissionError: [Errno 13] Permission denied: '{path}'",
        "sh: 1: {path}: Permission denied",
        "mkdir: cannot create directory '{path}': Permission denied",
        "PermissionError: [Errno 1] Operation not permitted: '{path}'",
        "botocore.exceptions.ClientError: An error occurred (AccessDenied) when calling the PutObject operation",
    ),
    "fs_full": (
        "OSError: [Errno 28] No space left on device: '{path}'",
        "OSError: [Errno 122] Disk quota exceeded: '{path}'",
        "cp: error writing '{path}': No space left on device",
        "RuntimeError: [enforce fail at inline_container.cc:{n}] . unexpected pos: No space left on device",
        "tar: {path}: Cannot write: No space left on device",
    ),
    "fs_readonly": (
        "OSError: [Errno 30] Read-only file system: '{path}'",
        "touch: cannot touch '{path}': Read-only file system",
        "mkdir: cannot create directory '{path}': Read-only file system",
    ),
    "checkpoint_mismatch": (
        # https://github.com/pytorch/pytorch/blob/main/torch/nn/modules/module.py
        'RuntimeError: Error(s) in loading state_dict for Net: Missing key(s) in state_dict: "layer{n}.weight".',
        "RuntimeError: Error(s) in loading state_dict for Net: size mismatch for fc.weight: copying a param with shape",
        'RuntimeError: Error(s) in loading state_dict for Net: Unexpected key(s) in state_dict: "module.fc{n}.bias".',
        "ValueError: loaded state dict contains a parameter group that doesn't match the size of optimizer's group",
        "RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory",
        "safetensors_rust.SafetensorError: Error while deserializing header: HeaderTooLarge",
    ),
    "shape_mismatch": (
        "RuntimeError: mat1 and mat2 shapes cannot be multiplied ({n}x512 and 256x10)",
        "RuntimeError: The size of tensor a ({n}) must match the size of tensor b (3) at non-singleton dimension 1",
        "RuntimeError: Sizes of tensors must match except in dimension 1. Expected size 2 but got size {n}",
        "RuntimeError: shape '[{n}, 784]' is invalid for input of size 100352",
        "RuntimeError: Given groups=1, weight of size [64, 3, 7, 7], expected input[8, 1, 28, 28] to have 3 channels",
        "ValueError: operands could not be broadcast together with shapes ({n},) (4,)",
        "ValueError: Expected input batch_size ({n}) to match target batch_size (16).",
        "RuntimeError: stack expects each tensor to be equal size, but got [{n}] at entry 0 and [5] at entry 1",
        "TypeError: dot_general requires contracting dimensions to have the same shape, got ({n},) and (4,).",
        "IndexError: index out of range in self",
    ),
    "gpu_hardware": (
        "RuntimeError: CUDA error: uncorrectable ECC error encountered",
        "RuntimeError: CUDA error: uncorrectable NVLink error detected during the execution",
        "Unable to determine the device handle for GPU0000:3B:00.0: GPU is lost. Reboot the system to recover this GPU",
        "RuntimeError: CUDA error: hardware stack error",
    ),
    "gpu_peer_access": (
        "RuntimeError: CUDA error: peer access is not supported between these two devices",
        "RuntimeError: CUDA error: peer mapping resources exhausted",
    ),
    "time_limit": (
        # https://github.com/SchedMD/slurm/blob/master/src/slurmd/slurmstepd/req.c
        "slurmstepd: error: *** JOB {n} ON {host} CANCELLED AT 2026-01-01T00:00:00 DUE TO TIME LIMIT ***",
        "slurmstepd: error: *** STEP {n}.0 ON {host} CANCELLED AT 2026-01-01T00:00:00 DUE TO TIME LIMIT ***",
        "=>> PBS: job killed: walltime {n} exceeded limit 60",
        "TERM_RUNLIMIT: job killed after reaching LSF run time limit.",
    ),
    "preempted": (
        "slurmstepd: error: *** JOB {n} ON {host} CANCELLED AT 2026-01-01T00:00:00 DUE TO PREEMPTION ***",
        "The spot instance will be reclaimed in 120 seconds: spot interruption",
    ),
    "node_failure": (
        (
            "slurmstepd: error: *** JOB {n} ON {host} CANCELLED AT 2026-01-01T00:00:00 DUE TO NODE FAILURE, SEE "
            "SLURMCTLD LOG FOR DETAILS ***"
        ),
        "srun: error: Node failure on {host}",
    ),
    "segfault": (
        "Fatal Python error: Segmentation fault",
        "Segmentation fault (core dumped)",
        "Bus error (core dumped)",
        "DataLoader worker (pid {n}) is killed by signal: Segmentation fault.",
    ),
    "python_exception": (
        "ValueError: the batch {n} is empty",
        "KeyError: 'label{n}'",
        "AttributeError: 'NoneType' object has no attribute 'shape'",
        "ModuleNotFoundError: No module named 'apex{n}'",
        "AssertionError",
        "TypeError: forward() missing {rank} required positional argument: 'mask'",
        "ZeroDivisionError: division by zero",
        "requests.exceptions.HTTPError: 404 Client Error: Not Found for url",
    ),
}
"""Lines that name the cause of a failure, by rule."""

UNCAUGHT: tuple[tuple[int, tuple[str, ...]], ...] = (
    (134, ("terminate called after throwing an instance of 'std::out_of_range'", "  what():  vector::at: n is 7")),
    (134, ("libc++abi: terminating due to uncaught exception of type std::bad_function_call: call of an empty one",)),
    (134, ("terminate called without an active exception",)),
    (134, ("simulate: grid.c:212: advance: Assertion `step > 0' failed.",)),
    (134, ("*** stack smashing detected ***: terminated",)),
    (134, ("free(): double free detected in tcache 2",)),
    (
        2,
        (
            "panic: runtime error: index out of range [5] with length 3",
            "",
            "goroutine 1 [running]:",
            "main.load(...)",
            "\t/src/load.go:41 +0x1d",
            *(f"goroutine {n} [select]:" for n in range(2, 90)),
            "exit status 2",
        ),
    ),
    (2, ("fatal error: all goroutines are asleep - deadlock!", "", "goroutine 1 [chan receive]:", "main.main()")),
    (
        101,
        (
            "thread 'main' panicked at src/main.rs:19:34:",
            "index out of bounds: the len is 3 but the index is 7",
            "note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace",
        ),
    ),
    (101, ("thread 'worker-3' panicked at 'the queue is closed', src/queue.rs:88:9",)),
    (
        1,
        (
            'Exception in thread "main" java.lang.IllegalStateException: the queue is closed',
            "\tat com.example.Worker.run(Worker.java:31)",
            "Caused by: java.util.concurrent.TimeoutException: no batch in 30 s",
            "\t... 2 more",
        ),
    ),
    (
        1,
        (
            "/app/load.js:3",
            "    throw new Error('x')",
            "    ^",
            "",
            "Error: no batch",
            "    at load (/app/load.js:3:9)",
        ),
    ),
    (134, ("Unhandled exception. System.InvalidOperationException: the queue is closed", "   at Load.Main() in a.cs")),
    (1, ("ERROR: LoadError: BoundsError: attempt to access 3-element Vector", "Stacktrace:", " [1] top-level scope")),
    (1, ("Error in read(path) : the batch is empty", "Calls: main -> read", "Execution halted")),
    (1, ("load.rb:3:in `read': the batch is empty (RuntimeError)", "\tfrom load.rb:9:in `<main>'")),
    (255, ("the batch is empty at load.pl line 3.",)),
    (24, ("forrtl: severe (24): end-of-file during read, unit 10, file /data/in",)),
    (2, ("At line 5 of file load.f90", "Fortran runtime error: End of file")),
    (1, ("load: Prelude.head: empty list", "CallStack (from HasCallStack):", "  error, called at Load.hs:3")),
)
"""Exit status and last lines of failed programs in languages other than Python."""

CHATTER = (
    "step {n} loss 2.{rank}1 lr 0.0003 tokens/s {n}",
    "INFO:root:saved checkpoint to {path}",
    "WARNING: retrying the download of {path} (attempt {rank} of 5)",
    "/usr/lib/python3/dist-packages/x.py:{n}: UserWarning: the default of `y` will change in a later release",
    "wandb: Synced {rank} file(s), 0 media file(s)",
    "[2026-01-01 00:00:00,{n}] [INFO] [launch.py:{rank}:main] world_size: 8",
    "evaluation: accuracy 0.{n} errors 0 failed 0",
    "loading {n} shards, no errors found; nanny thread information: interval 5",
)
"""Log lines of healthy programs."""


def draw_line(random: np.random.Generator, text: str) -> str:
    """Return the text with random values in its fields."""
    path = "/".join(["", *random.choice(["data", "out", "ckpt", "shared", "run-7", "a b"], int(random.integers(1, 4)))])
    return text.format(
        n=int(random.integers(10, 9_999)), rank=int(random.integers(0, 8)), path=path, host=f"n{random.integers(1, 99)}"
    )
