"""What NVIDIA's XID codes mean.

Source: https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html
"""

from collections.abc import Mapping
from dataclasses import dataclass

from jobmeter.model.finding import Severity


@dataclass(frozen=True, slots=True)
class Xid:
    """What a code means, and how bad it is for the job."""

    text: str
    severity: Severity


_WARNING, _CRITICAL, _INFO = Severity.WARNING, Severity.CRITICAL, Severity.INFO
XIDS: Mapping[int, Xid] = {
    13: Xid("graphics engine exception, usually the application's", _WARNING),
    31: Xid("memory page fault, usually the application's", _WARNING),
    43: Xid("the application's channel was stopped, usually its own fault", _WARNING),
    45: Xid("preemptive cleanup, follows another error", _INFO),
    48: Xid("double bit ECC error", _CRITICAL),
    61: Xid("internal micro-controller breakpoint", _WARNING),
    62: Xid("internal micro-controller halt", _CRITICAL),
    63: Xid("a memory row was remapped or a page retired", _WARNING),
    64: Xid("remapping a memory row or retiring a page failed", _CRITICAL),
    68: Xid("video decoder exception", _WARNING),
    69: Xid("graphics engine class error", _WARNING),
    74: Xid("NVLink error", _CRITICAL),
    79: Xid("the GPU has fallen off the bus", _CRITICAL),
    92: Xid("high single bit ECC error rate", _WARNING),
    94: Xid("contained memory error", _CRITICAL),
    95: Xid("uncontained memory error", _CRITICAL),
    109: Xid("context switch timeout", _WARNING),
    119: Xid("the GPU system processor does not answer", _CRITICAL),
    120: Xid("error of the GPU system processor", _CRITICAL),
    140: Xid("ECC error that was not recovered", _CRITICAL),
    143: Xid("the GPU could not be initialized", _CRITICAL),
}
