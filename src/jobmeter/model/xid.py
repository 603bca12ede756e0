"""NVIDIA's XID codes: meaning and advice, and how a kernel line reports one.

Sources: https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html, and for codes that it leaves out
https://github.com/NVIDIA/open-gpu-kernel-modules, nverror.h.
"""

import re
from collections.abc import Mapping, Sequence

import msgspec

from jobmeter.model.finding import Severity


class Xid(msgspec.Struct, frozen=True):
    """Meaning of a code, its severity for the job, and the vendor's advice."""

    text: str
    severity: Severity
    advice: str


class XidReport(msgspec.Struct, frozen=True):
    """Code that a line reports, and the PCI address of the device, empty without an address.

    ``instance`` and ``place`` are the GPU instance and the compute instance of a MIG device, if the line has them.
    """

    code: int
    device: str
    instance: int | None = None
    place: int | None = None

    def __str__(self) -> str:
        """Return the code and the MIG instance in the form of the kernel's lines."""
        parts = "".join(
            f" {name}:{number:02}"
            for name, number in (("GPU-I", self.instance), ("GPU-CI", self.place))
            if number is not None
        )
        return f"Xid (PCI:{self.device}{parts}): {self.code}" if self.device else f"Xid {self.code}"

    @property
    def meaning(self) -> Xid:
        """Entry of the code in the table, or the entry for unknown codes."""
        return XIDS.get(self.code, _UNKNOWN)


_WARNING, _CRITICAL, _INFO = Severity.WARNING, Severity.CRITICAL, Severity.INFO
_APPLICATION = "Restart the application; look for illegal accesses in it (compute-sanitizer)."
_RESET = "Drain the node and reset the GPU."
_REBOOT = "Drain and reboot the node; if the error comes back, return the GPU to its vendor."
_NOTHING = "No action of its own: look for the error that it follows."
_WATCH = "Watch it; reset the GPU at the next idle moment."
_UNKNOWN = Xid("an unknown code", _WARNING, "See the vendor's catalogue for the code.")
_DRIVER = "Look for the application that caused it; else update the driver, and reset the GPU if it repeats."
_DISPLAY = "No action for a GPU that computes; update the driver if it repeats."
_FIRMWARE = "Update the driver and the firmware; reset the GPU if it repeats."
_CONTAINED = "Restart the application; reset the GPU at the next idle moment."
_LINK = "Look at the NVLink error counters of both ends, then drain and reset."
_HEAT = "Look at the temperature and the power of the GPU, and at the cooling of the node."
_COPY_ENGINES = (39, 40, 41, 70, 71, 72, 75, 76, 77, 85, *range(126, 136))
_CODES: Sequence[tuple[Sequence[int], str, Severity, str]] = (
    ((1, 2, 3, 4, 6, 11, 25, 32), "invalid or corrupted push buffer stream", _WARNING, _DRIVER),
    ((7,), "invalid or corrupted push buffer address", _WARNING, _DRIVER),
    ((8, 46), "the GPU stopped processing", _WARNING, _DRIVER),
    ((9, 12), "the driver failed while it programmed the GPU", _WARNING, _DRIVER),
    ((13,), "graphics engine exception, usually the application's", _WARNING, _APPLICATION),
    ((15, 16, 17, 19, 56, 81, *range(111, 119)), "error of the display engine", _INFO, _DISPLAY),
    ((14, 23, 87, 91), "a message of the driver without an error", _INFO, "No action."),
    ((18,), "bus mastering is disabled in the PCI configuration", _CRITICAL, _REBOOT),
    ((20, 21, 22), "invalid or corrupted video push buffer", _WARNING, _DRIVER),
    ((24, 30), "semaphore time-out or access error", _WARNING, _DRIVER),
    ((26,), "time-out of the frame buffer", _WARNING, _RESET),
    ((27, 28, 29, 34, 35, 36, 42, 47, 60, 65), "video processor exception", _WARNING, _APPLICATION),
    ((31,), "memory page fault, usually the application's", _WARNING, _APPLICATION),
    ((33, 59), "internal micro-controller error", _WARNING, _RESET),
    ((37, 38), "error of the driver's firmware", _WARNING, _FIRMWARE),
    ((43,), "the application's channel was stopped, usually its own fault", _WARNING, _APPLICATION),
    ((44,), "graphics engine fault during a context switch", _WARNING, _DRIVER),
    ((45,), "preemptive cleanup, follows another error", _INFO, _NOTHING),
    ((48,), "double bit ECC error", _CRITICAL, _RESET),
    ((49, 50, 51, 52, 53, 55), "the driver changed the power state, for heat or for power", _WARNING, _HEAT),
    ((54,), "auxiliary power is not connected", _CRITICAL, "Connect the power cable of the GPU."),
    ((57, 58), "the memory interface is unstable or could not be programmed", _CRITICAL, _REBOOT),
    ((61,), "internal micro-controller breakpoint", _WARNING, _RESET),
    ((62, 169), "internal micro-controller halt", _CRITICAL, _RESET),
    ((63,), "a memory row was remapped or a page retired", _WARNING, _WATCH),
    ((64,), "remapping a memory row or retiring a page failed", _CRITICAL, _RESET),
    ((66, 67), "illegal access by the driver", _WARNING, _DRIVER),
    ((68, 83, 84, 88, 89, 96, 97, 98), "video decoder exception", _WARNING, _APPLICATION),
    ((69,), "graphics engine class error", _WARNING, _APPLICATION),
    (_COPY_ENGINES, "error of a copy engine", _WARNING, _APPLICATION),
    ((73, 142), "video encoder exception", _WARNING, _APPLICATION),
    ((74,), "NVLink error", _CRITICAL, _LINK),
    ((78,), "a virtual GPU could not start", _WARNING, _DRIVER),
    ((79,), "the GPU has fallen off the bus", _CRITICAL, _REBOOT),
    ((80,), "corrupted data was sent to the GPU", _CRITICAL, _REBOOT),
    ((82, *range(99, 106)), "JPEG engine exception", _WARNING, _APPLICATION),
    ((86, 139), "optical flow engine exception", _WARNING, _APPLICATION),
    ((90,), "error of the second-level cache", _WARNING, _RESET),
    ((92,), "high single bit ECC error rate", _WARNING, _WATCH),
    ((93,), "the board's memory of settings is worn", _WARNING, _WATCH),
    ((94,), "contained memory error", _CRITICAL, _CONTAINED),
    ((95,), "uncontained memory error", _CRITICAL, _RESET),
    ((106, 107), "test message of the board's management", _INFO, "No action."),
    ((109,), "context switch timeout", _WARNING, _APPLICATION),
    ((110,), "security fault", _CRITICAL, _REBOOT),
    ((119,), "the GPU system processor does not answer", _CRITICAL, _RESET),
    ((120,), "error of the GPU system processor", _CRITICAL, _RESET),
    ((121,), "error of the link between chips (C2C)", _WARNING, _WATCH),
    ((122, 123, 124), "the board's flash memory cannot be accessed", _WARNING, _FIRMWARE),
    ((125,), "the board's memory of settings is damaged", _WARNING, _FIRMWARE),
    ((136,), "training of a link failed", _CRITICAL, _LINK),
    ((137,), "NVLink access without privilege, usually the application's", _WARNING, _APPLICATION),
    ((138, 152, 153), "error of the deep learning accelerator", _WARNING, _APPLICATION),
    ((140,), "ECC error that was not recovered", _CRITICAL, _RESET),
    ((141,), "error of a channel's fast path", _WARNING, _APPLICATION),
    ((143,), "the GPU could not be initialized", _CRITICAL, _REBOOT),
    ((*range(144, 151), 155, 166, 170), "NVLink error", _CRITICAL, _LINK),
    ((151,), "rotation of an encryption key failed", _WARNING, _APPLICATION),
    ((154,), "the recovery action of the GPU changed", _WARNING, "Do what `gpu.recovery.action` says."),
    ((156, 160), "a resource of the GPU was retired", _WARNING, _WATCH),
    ((157, 161), "retiring a resource of the GPU failed", _CRITICAL, _RESET),
    ((158,), "fatal time-out of the GPU", _CRITICAL, _RESET),
    ((159,), "error of the coherent link to the processor", _CRITICAL, _RESET),
    ((162, 163), "power smoothing was switched on or off", _INFO, "No action."),
    ((164, 165), "the power smoothing circuit is worn", _WARNING, "Plan to replace the GPU."),
    ((167,), "fatal time-out of PCIe", _CRITICAL, _REBOOT),
    ((168,), "errors in protected memory: the GPU has less memory", _WARNING, _RESET),
    ((171,), "memory error of DRAM that could not be corrected", _CRITICAL, _RESET),
    ((172,), "memory error of SRAM that could not be corrected", _CRITICAL, _RESET),
)
XIDS: Mapping[int, Xid] = {
    code: Xid(text, severity, advice) for codes, text, severity, advice in _CODES for code in codes
}
"""Codes that the catalogue or the driver's source names; the others up to 172 are unused or reserved."""
_LINE = re.compile(
    r"Xid \((?:PCI:)?(?P<device>[0-9A-Fa-f:.]{4,20})"
    r"(?: GPU-I:(?P<instance>\d{1,3})(?: GPU-CI:(?P<place>\d{1,3}))?)?\): (?P<code>\d{1,3})\b"
    r"|\bXid[ :=]+(?P<only>\d{1,3})\b",
    re.ASCII,
)
_LONGEST = 4_000


def read_xid(text: str) -> XidReport | None:
    """Find the XID that a line reports; None without one. Only the first 4,000 characters are searched."""
    match = _LINE.search(text[:_LONGEST])
    if match is None:
        return None
    instance, place = (None if found is None else int(found) for found in match.group("instance", "place"))
    return XidReport(int(match["code"] or match["only"]), match["device"] or "", instance, place)
