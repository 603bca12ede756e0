"""DCMI through ctypes: the library of Huawei's driver, its structures and its return codes.

https://github.com/Ascend/mind-cluster, ``dcmi_interface_api.h``. The first interface names a chip by card and chip, the
second one (``dcmiv2_*``, Ascend 950) by one number.
"""

import ctypes
from collections.abc import Mapping
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple, TypeVar

from jobmeter.collect.accelerators.device import DeviceLostError, NotSupportedError
from jobmeter.model.device import DeviceState

LIBRARY = "libdcmi.so"
FOLDERS = ("/usr/local/dcmi", "/usr/local/Ascend/driver/lib64/driver", "/usr/local/Ascend/driver/lib64")
"""Folders in which the driver's package puts its library."""
NOT_PERMITTED, TIMED_OUT, GONE, NOT_IN_CONTAINER, NOT_SUPPORTED = -8002, -8006, -8008, -8013, -8255
_LASTING = frozenset({NOT_PERMITTED, NOT_IN_CONTAINER, NOT_SUPPORTED})
_STATES: Mapping[int, DeviceState] = {NOT_PERMITTED: DeviceState.NO_PERMISSION, TIMED_OUT: DeviceState.HANGS}
_TEXTS: Mapping[int, str] = {
    NOT_PERMITTED: "not permitted",
    TIMED_OUT: "timed out",
    GONE: "the device is gone",
    -8012: "the device is not ready",
    NOT_IN_CONTAINER: "not available in a container",
    -8017: "the device is being upgraded",
    -8020: "the device is occupied",
    NOT_SUPPORTED: "not supported",
}
_FIRST_NAMES: Mapping[str, str] = {
    "pcie_info": "pcie_info_v2",
    "chip_info": "chip_info_v2",
    "die_id": "die_v2",
    "error_code_list": "errorcode_v2",
    "proc_mem_info": "resource_info",
}
"""Names of calls in the first interface, by their different name in the second interface."""
_MOST_DEVICES = 64
_HANGS_SECONDS = 0.5
"""Seconds that a call waits for the call before it.

Then that call counts as hanging, and no later call waits for it.
"""

S = TypeVar("S", bound=ctypes.Structure)


class ChipInfo(ctypes.Structure):
    """``struct dcmi_chip_info_v2``."""

    _fields_ = (
        *((name, ctypes.c_char * 32) for name in ("kind", "name", "version")),
        ("cores", ctypes.c_uint),
        ("npu_name", ctypes.c_char * 32),
    )


class PcieInfo(ctypes.Structure):
    """``struct dcmi_pcie_info_all``."""

    _fields_ = (
        ("ids", ctypes.c_uint * 4),
        ("domain", ctypes.c_int),
        *((name, ctypes.c_uint) for name in ("bus", "device", "function")),
        ("reserve", ctypes.c_ubyte * 32),
    )


class DieId(ctypes.Structure):
    """``struct dcmi_die_id``."""

    _fields_ = (("words", ctypes.c_uint * 5),)


class HbmInfo(ctypes.Structure):
    """``struct dcmi_hbm_info``: sizes in MB, MHz, degrees Celsius, percent."""

    _fields_ = (
        ("size", ctypes.c_ulonglong),
        ("clock", ctypes.c_uint),
        ("used", ctypes.c_ulonglong),
        ("temperature", ctypes.c_int),
        ("bandwidth", ctypes.c_uint),
    )


class MemoryInfo(ctypes.Structure):
    """``struct dcmi_get_memory_info_stru``: sizes in MB, percent in use. For chips without HBM."""

    _fields_ = (
        *((name, ctypes.c_ulonglong) for name in ("size", "available")),
        ("clock", ctypes.c_uint),
        ("pages", ctypes.c_ulong * 3),
        ("utilization", ctypes.c_uint),
        ("reserve", ctypes.c_ubyte * 60),
    )


class EccInfo(ctypes.Structure):
    """``struct dcmi_ecc_info``: errors since the last reset, in total, and isolated pages; corrected ones first."""

    _fields_ = (
        ("enabled", ctypes.c_int),
        *((name, ctypes.c_uint * 2) for name in ("errors", "total", "isolated", "next_isolated")),
    )


class ProcessInfo(ctypes.Structure):
    """``struct dcmi_proc_mem_info``: the process and its bytes on the device."""

    _fields_ = (("pid", ctypes.c_int), ("memory", ctypes.c_ulong))


class Chip(NamedTuple):
    """Chip of a library: the arguments that name the chip in each call, and the number of its file in /dev."""

    address: tuple[int, ...]
    number: int


class DcmiError(NotSupportedError):
    """Value that a call of DCMI did not give; ``code`` is DCMI's."""

    def __init__(self, code: int) -> None:
        text = f"{_TEXTS.get(code, 'it failed')} (DCMI {code})"
        super().__init__(text, lasting=code in _LASTING, state=_STATES.get(code, DeviceState.LOST))
        self.code = code


class Dcmi:
    """Open library, for several threads. Calls run one at a time: the driver refuses many calls at once."""

    def __init__(self, library: ctypes.CDLL) -> None:
        """Raises DcmiError if the library cannot be initialized."""
        self._library = library
        self._guard, self._turn = Lock(), Lock()
        self._second = False
        code = self.call("dcmi_init")
        if code or not self._list_first_chips():
            second = self.call("dcmiv2_init")
            self._second = second == 0
            if code and second:
                raise DcmiError(code if code != NOT_SUPPORTED else second)

    def call(self, name: str, *arguments: Any) -> int:  # noqa: ANN401 - of C
        """Call a function and return its code: ``NOT_SUPPORTED`` if this version of the library lacks it."""
        function = getattr(self._library, name, None)
        if function is None:
            return NOT_SUPPORTED
        turn = self._take_turn()
        try:
            return int(function(*arguments))
        finally:
            turn.release()

    def list_chips(self) -> list[Chip]:
        """Return the chips that compute. Raises DcmiError."""
        return self._list_second_chips() if self._second else self._list_first_chips()

    def ask(self, chip: Chip, name: str, *arguments: Any) -> None:  # noqa: ANN401
        """Call ``get_device_NAME`` of a chip. Raises DcmiError, and DeviceLostError if the chip is gone."""
        own = f"dcmiv2_get_device_{name}" if self._second else f"dcmi_get_device_{_FIRST_NAMES.get(name, name)}"
        code = self.call(own, *map(ctypes.c_int, chip.address), *arguments)
        if code == GONE:
            raise DeviceLostError(str(DcmiError(code)))
        if code:
            raise DcmiError(code)

    def read_number(self, chip: Chip, name: str, *arguments: int) -> int:
        """Return a number of a chip."""
        found = ctypes.c_int()
        self.ask(chip, name, *map(ctypes.c_int, arguments), ctypes.byref(found))
        return found.value

    def fill(self, chip: Chip, name: str, structure: S, *arguments: int) -> S:
        """Fill a structure of a chip and return it."""
        self.ask(chip, name, *map(ctypes.c_int, arguments), ctypes.byref(structure))
        return structure

    def _take_turn(self) -> Lock:
        while True:
            turn = self._turn
            if turn.acquire(timeout=_HANGS_SECONDS):
                return turn
            with self._guard:
                if self._turn is turn:
                    self._turn = Lock()

    def _list_first_chips(self) -> list[Chip]:
        found: list[Chip] = []
        for card in self._list_numbers("dcmi_get_card_list", first=True):
            chips, rest = ctypes.c_int(), (ctypes.c_int(), ctypes.c_int())
            arguments = (ctypes.c_int(card), ctypes.byref(chips), *map(ctypes.byref, rest))
            if self.call("dcmi_get_device_id_in_card", *arguments):
                continue
            for chip in range(min(max(chips.value, 0), _MOST_DEVICES)):
                logical, physical = ctypes.c_int(), ctypes.c_uint()
                pair = ctypes.c_int(card), ctypes.c_int(chip)
                code = self.call("dcmi_get_device_logic_id", ctypes.byref(logical), *pair)
                code = code or self.call(
                    "dcmi_get_device_phyid_from_logicid", ctypes.c_uint(logical.value), ctypes.byref(physical)
                )
                if not code:
                    found.append(Chip((card, chip), physical.value))
        return sorted(found, key=lambda one: one.number)

    def _list_second_chips(self) -> list[Chip]:
        found: list[Chip] = []
        for device in self._list_numbers("dcmiv2_get_device_list", first=False):
            physical = ctypes.c_uint()
            name = "dcmiv2_get_chip_phy_id_by_dev_id"
            if not self.call(name, ctypes.c_uint(device), ctypes.byref(physical)):
                found.append(Chip((device,), physical.value))
        return sorted(found, key=lambda one: one.number)

    def _list_numbers(self, name: str, *, first: bool) -> list[int]:
        """Return the cards or devices. The two interfaces return count and list in different order."""
        count, numbers = ctypes.c_int(), (ctypes.c_int * _MOST_DEVICES)()
        pair = (ctypes.byref(count), numbers) if first else (numbers, ctypes.byref(count))
        code = self.call(name, *pair, ctypes.c_int(_MOST_DEVICES))
        return [] if code else list(numbers[: min(max(count.value, 0), _MOST_DEVICES)])


def load(folders: tuple[str, ...] = FOLDERS) -> ctypes.CDLL | None:
    """Load the library; None if it is missing or cannot be loaded."""
    paths = [str(path) for folder in folders if (path := Path(folder, LIBRARY)).exists()]
    for name in (*paths, LIBRARY):
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None
