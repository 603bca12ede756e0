"""Machine whose files are read."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Machine:
    """Paths of the machine's files; replaceable in tests."""

    proc: str = "/proc"
    sys: str = "/sys"
    dev: str = "/dev"
    run: str = "/run"
    var: str = "/var"
