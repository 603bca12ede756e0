"""Environment of a process. Only a fixed list of names is read, because it also contains secrets."""

from jobmeter.collect import files
from jobmeter.collect.accelerators.registry import list_device_variables
from jobmeter.collect.text import parse_whole_number

_RANKS = (
    "RANK",  # torchrun, Accelerate, DeepSpeed, PyTorchJob
    "OMPI_COMM_WORLD_RANK",  # Open MPI
    "MV2_COMM_WORLD_RANK",  # MVAPICH
    "HOROVOD_RANK",
    "PMIX_RANK",
    "PMI_RANK",  # MPICH, Intel MPI
    "RANK_ID",  # MindSpore, on Ascend
    "SLURM_PROCID",
)
_LOCAL_RANKS = (
    "LOCAL_RANK",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "MV2_COMM_WORLD_LOCAL_RANK",
    "HOROVOD_LOCAL_RANK",
    "MPI_LOCALRANKID",
    "SLURM_LOCALID",
)

NAMES = frozenset(
    {
        *_RANKS,
        *_LOCAL_RANKS,
        *("JOBMETER_JOB_ID", "JOBMETER_REPLICA", "JOBMETER_ATTEMPT", "JOBMETER_MEASURED"),
        *("SLURM_CLUSTER_NAME", "SLURM_JOB_ID", "SLURM_JOB_NAME", "SLURM_JOB_USER", "SLURM_JOB_START_TIME"),
        *("SLURM_RESTART_COUNT", "SLURM_TASKS_PER_NODE", "SLURM_STEP_ID"),
        *("HOSTNAME", "JOB_COMPLETION_INDEX"),
        *("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "GROUP_RANK"),
    }
)
"""Variables that are read besides those that name devices."""
_LIMITS = {name.encode(): (name, 512) for name in NAMES}
"""Longest value of each variable."""
_LONGEST_LIST = 4_096
"""Longest list of devices that is read: the UUIDs of 16 GPUs take 655 characters."""
_MOST = 1024 * 1024
"""Most bytes of an environment that are read. A user may make it as long as the kernel permits."""


def read_environment(proc_root: str, pid: int) -> dict[str, str]:
    """Read the variables in ``NAMES``, and those that name devices, with which the process was started.

    Empty if they are not readable.
    """
    limits = _LIMITS | {name.encode(): (name, _LONGEST_LIST) for name in list_device_variables()}
    found = {}
    for entry in (files.read(f"{proc_root}/{pid}/environ", _MOST) or b"").split(b"\0"):
        name, equals, value = entry.partition(b"=")
        variable, longest = limits.get(name, ("", 0))
        if equals and variable and len(value) <= longest:
            found[variable] = value.decode(errors="replace")
    return found


def find_rank(variables: dict[str, str]) -> int | None:
    """Return the rank of the process, as set by any of the usual launchers."""
    return _find_number(variables, _RANKS)


def find_local_rank(variables: dict[str, str]) -> int | None:
    """Return the rank among the processes of this node."""
    return _find_number(variables, _LOCAL_RANKS)


def parse_number(variables: dict[str, str], name: str) -> int | None:
    """Return the value of a variable that is a whole number of at most 9 digits; None for any other."""
    return parse_whole_number(variables.get(name, ""))


def _find_number(variables: dict[str, str], names: tuple[str, ...]) -> int | None:
    return next((found for name in names if (found := parse_number(variables, name)) is not None), None)
