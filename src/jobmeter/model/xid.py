"""NVIDIA's XID codes: meaning and advice, and how a kernel line reports one.

Source: https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html.
"""

import re
from collections.abc import Mapping

import msgspec

from jobmeter.model.finding import Severity


class Xid(msgspec.Struct, frozen=True):
    """Meaning of a code, its severity for the job, and the vendor's advice."""

    text: str
    severity: Severity
    advice: str


class XidReport(msgspec.Struct, frozen=True):
    """Code that a line reports, and the PCI address of the device; empty if the line has none."""

    code: int
    device: str

    @property
    def meaning(self) -> Xid:
        """Entry of the code in the table, or the entry for unknown codes."""
        return XIDS.get(self.code, _UNKNOWN)


_WARNING, _CRITICAL, _INFO = Severity.WARNING, Severity.CRITICAL, Severity.INFO
_APPLICATION = "Restart the application; look for illegal accesses in it (compute-sanitizer)."
_RESET = "Drain the node and reset the GPU."
_REBOOT = "Drain and reboot the node; where it comes back, hand the GPU to its vendor."
_NOTHING = "No action of its own: look for the error that it follows."
_WATCH = "Watch it; reset the GPU at the next idle moment."
_UNKNOWN = Xid("an unknown code", _WARNING, "See the vendor's catalogue for the code.")
XIDS: Mapping[int, Xid] = {
    13: Xid("graphics engine exception, usually the application's", _WARNING, _APPLICATION),
    31: Xid("memory page fault, usually the application's", _WARNING, _APPLICATION),
    43: Xid("the application's channel was stopped, usually its own fault", _WARNING, _APPLICATION),
    45: Xid("preemptive cleanup, follows another error", _INFO, _NOTHING),
    48: Xid("double bit ECC error", _CRITICAL, _RESET),
    61: Xid("internal micro-controller breakpoint", _WARNING, _RESET),
    62: Xid("internal micro-controller halt", _CRITICAL, _RESET),
    63: Xid("a memory row was remapped or a page retired", _WARNING, _WATCH),
    64: Xid("remapping a memory row or retiring a page failed", _CRITICAL, _RESET),
    68: Xid("video decoder exception", _WARNING, _APPLICATION),
    69: Xid("graphics engine class error", _WARNING, _APPLICATION),
    74: Xid("NVLink error", _CRITICAL, "Look at the NVLink error counters of both ends, then drain and reset."),
    79: Xid("the GPU has fallen off the bus", _CRITICAL, _REBOOT),
    92: Xid("high single bit ECC error rate", _WARNING, _WATCH),
    94: Xid("contained memory error", _CRITICAL, "Restart the application; reset the GPU at the next idle moment."),
    95: Xid("uncontained memory error", _CRITICAL, _RESET),
    109: Xid("context switch timeout", _WARNING, _APPLICATION),
    119: Xid("the GPU system processor does not answer", _CRITICAL, _RESET),
    120: Xid("error of the GPU system processor", _CRITICAL, _RESET),
    140: Xid("ECC error that was not recovered", _CRITICAL, _RESET),
    143: Xid("the GPU could not be initialized", _CRITICAL, _REBOOT),
}
_LINE = re.compile(
    r"Xid \((?:PCI:)?(?P<device>[0-9A-Fa-f:.]{4,20})\): (?P<code>\d{1,3})\b|\bXid[ :=]+(?P<only>\d{1,3})\b"
)
_LONGEST = 4_000


def read_xid(text: str) -> XidReport | None:
    """Find the XID that a line reports; None without one. Only the first 4,000 characters are searched."""
    match = _LINE.search(text[:_LONGEST])
    return match and XidReport(int(match["code"] or match["only"]), match["device"] or "")
