"""Parse ``gpu_metrics``, the binary table of the firmware's readings.

https://github.com/torvalds/linux/blob/master/drivers/gpu/drm/amd/include/kgd_pp_interface.h. All numbers are little
endian. A number whose bits are all 1 is absent.
"""

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from struct import Struct
from typing import NamedTuple

LONGEST = 65_536
"""Most bytes that are read of a table: its length is a 16-bit number."""
_HEADER = Struct("<HBB")
_COUNT = Struct("<i")
_CODE = Struct("<Q")
_TYPES = "bBhHiIqQ"
"""Types of the self-describing table in the order of their numbers, as ``struct`` names them."""
_SELF_DESCRIBING = 1, 9
_MOST_ATTRIBUTES = 1_024


class UnknownTableError(Exception):
    """Table of an unknown version, or a damaged one."""


class Value(StrEnum):
    """Values of a table. A value of several links or dies is a list."""

    HOTSPOT = "hotspot"  # degrees Celsius
    MEMORY_TEMPERATURE = "memory temperature"  # degrees Celsius
    POWER = "power"  # watts of the socket
    BUSY = "busy"  # percent of time
    MEMORY_BUSY = "memory busy"  # percent of time
    ENERGY = "energy"  # 2^-16 J
    CLOCK = "clock"  # MHz of each die
    MEMORY_CLOCK = "memory clock"  # MHz
    XGMI_READ = "xgmi read"  # KiB of each link
    XGMI_WRITE = "xgmi write"  # KiB of each link
    # Readings of the firmware so far, and in how many of them each limit slowed the device.
    READINGS = "readings"
    PROCHOT = "prochot"
    PACKAGE_POWER = "package power"
    SOCKET_HEAT = "socket heat"
    REGULATOR_HEAT = "regulator heat"
    MEMORY_HEAT = "memory heat"


class _Place(NamedTuple):
    """Place of a value: its offset, its type as ``struct`` names it, how many there are, and its scale."""

    offset: int
    kind: str
    members: int = 1
    scale: float = 1.0


_Layout = Mapping[Value, _Place]
_COUNTS = (
    *(Value.READINGS, Value.PROCHOT, Value.PACKAGE_POWER),
    *(Value.SOCKET_HEAT, Value.REGULATOR_HEAT, Value.MEMORY_HEAT),
)
"""Counts of readings, in the order of the table."""


def _lay_out_first_values(*offsets: int) -> dict[Value, _Place]:
    names = (Value.HOTSPOT, Value.MEMORY_TEMPERATURE, Value.POWER, Value.BUSY, Value.MEMORY_BUSY)
    return {name: _Place(offset, "H") for name, offset in zip(names, offsets, strict=True)}


def _instinct(energy: int, clocks: int, xgmi: int, readings: int | None = None) -> _Layout:
    """Return a layout of versions from 1.4: eight dies, and eight links."""
    limits = {} if readings is None else {name: _Place(readings + 4 * at, "I") for at, name in enumerate(_COUNTS)}
    return {
        **_lay_out_first_values(4, 6, 10, 12, 14),
        Value.ENERGY: _Place(energy, "Q"),
        Value.CLOCK: _Place(clocks, "H", 8),
        Value.MEMORY_CLOCK: _Place(clocks + 40, "H"),
        Value.XGMI_READ: _Place(xgmi, "Q", 8),
        Value.XGMI_WRITE: _Place(xgmi + 64, "Q", 8),
        **limits,
    }


_DISCRETE: _Layout = {
    **_lay_out_first_values(6, 8, 22, 16, 18),
    Value.ENERGY: _Place(24, "Q"),
    Value.CLOCK: _Place(54, "H"),
    Value.MEMORY_CLOCK: _Place(58, "H"),
}
"""Versions 1.1 to 1.3."""
_INTEGRATED: _Layout = {Value.CLOCK: _Place(76, "H")}
"""Versions 2.1 to 2.3. The units of their other values differ between chips."""
LAYOUTS: Mapping[tuple[int, int, int], _Layout] = {
    # Its energy has 32 bits, which are full after 65 kJ: a few minutes.
    (1, 0, 80): {
        **_lay_out_first_values(18, 20, 34, 28, 30),
        Value.CLOCK: _Place(54, "H"),
        Value.MEMORY_CLOCK: _Place(58, "H"),
    },
    (1, 1, 96): _DISCRETE,
    (1, 2, 104): _DISCRETE,
    (1, 3, 120): _DISCRETE,
    (1, 4, 288): _instinct(24, 240, 104),
    (1, 5, 360): _instinct(88, 312, 176),
    # Version 1.6 exists twice.
    (1, 6, 384): _instinct(88, 336, 200, 104),
    (1, 6, 1664): _instinct(16, 264, 128, 32),
    (1, 7, 2208): _instinct(24, 296, 136, 40),
    (1, 8, 3872): _instinct(24, 296, 136, 40),
    (2, 0, 120): {Value.CLOCK: _Place(80, "H")},
    (2, 1, 120): _INTEGRATED,
    (2, 2, 128): _INTEGRATED,
    (2, 3, 152): _INTEGRATED,
    (2, 4, 168): {**_INTEGRATED, Value.HOTSPOT: _Place(4, "H", scale=0.01)},
    (3, 0, 264): {Value.POWER: _Place(112, "I", scale=0.001)},
}
"""Layout of each table by format, content and length."""
_PARTITIONS: Mapping[tuple[int, int, int], tuple[int, int]] = {
    (1, 6, 1664): (312, 168),
    (1, 7, 2208): (344, 232),
    (1, 8, 3872): (344, 440),
}
"""Offset of the first partition and bytes of each partition, by format, content and length of the table."""
_MOST_PARTITIONS, _DIES, _MOST_PERCENT = 8, 8, 100
_ATTRIBUTES: Mapping[int, Value] = {
    0: Value.HOTSPOT,
    1: Value.MEMORY_TEMPERATURE,
    3: Value.POWER,
    4: Value.BUSY,
    5: Value.MEMORY_BUSY,
    7: Value.ENERGY,
    9: Value.READINGS,
    10: Value.PROCHOT,
    11: Value.PACKAGE_POWER,
    12: Value.SOCKET_HEAT,
    13: Value.REGULATOR_HEAT,
    14: Value.MEMORY_HEAT,
    29: Value.XGMI_READ,
    30: Value.XGMI_WRITE,
    33: Value.CLOCK,
    37: Value.MEMORY_CLOCK,
}
"""Values of the self-describing table by their numbers (AMDGPU_METRICS_ATTR_ID_*)."""


def parse_table(data: bytes) -> dict[Value, list[float]]:
    """Return the values that a table gives. Raises UnknownTableError for an unknown or incomplete one."""
    if len(data) < _HEADER.size:
        raise UnknownTableError(f"gpu_metrics has {len(data)} bytes")
    size, form, content = _HEADER.unpack_from(data)
    if (form, content) == _SELF_DESCRIBING:
        return dict(_decode_described(data[:size] if size else data))
    layout = LAYOUTS.get((form, content, size))
    if layout is None or len(data) < size:
        raise UnknownTableError(f"gpu_metrics of version {form}.{content} with {size} bytes; the file has {len(data)}")
    places = ((name, _numbers(data, place.offset, place.kind, place.members), place) for name, place in layout.items())
    return {name: [number * place.scale for number in found] for name, found, place in places if found}


def compute_partition_use(data: bytes, place: int) -> float | None:
    """Return a partition's utilization in percent: the mean over its dies. None if the table does not have it."""
    size, form, content = _HEADER.unpack_from(data) if len(data) >= _HEADER.size else (0, 0, 0)
    layout = _PARTITIONS.get((form, content, size))
    if layout is None or len(data) < size or not 0 <= place < _MOST_PARTITIONS:
        return None
    first, each = layout
    found = [number for number in _numbers(data, first + each * place, "I", _DIES) if number <= _MOST_PERCENT]
    return sum(found) / len(found) if found else None


def _numbers(data: bytes, offset: int, kind: str, count: int) -> Sequence[int]:
    """Return the numbers that are not absent."""
    form = Struct(f"<{count}{kind}")
    absent = 2 ** (8 * form.size // count) - 1 if kind.isupper() else -1
    return [number for number in form.unpack_from(data, offset) if number != absent]


def _decode_described(data: bytes) -> Iterator[tuple[Value, list[float]]]:
    """Yield the known values of the self-describing table: a code of 64 bits, then its numbers, without padding."""
    if len(data) < 8:
        raise UnknownTableError(f"gpu_metrics of version 1.9 has {len(data)} bytes")
    (count,) = _COUNT.unpack_from(data, 4)
    at = 8
    for _ in range(min(max(count, 0), _MOST_ATTRIBUTES)):
        code = _CODE.unpack_from(data, at)[0] if at + 8 <= len(data) else 0
        kind, instances = code >> 20 & 0xF, code & 0x3FF
        length = Struct(f"<{_TYPES[kind]}").size * instances if kind < len(_TYPES) else 0
        if not length or at + 8 + length > len(data):
            raise UnknownTableError("gpu_metrics of version 1.9 ends within a value")
        name = _ATTRIBUTES.get(code >> 10 & 0x3FF)
        found = _numbers(data, at + 8, _TYPES[kind], instances) if name else ()
        if name and found:
            yield name, [float(number) for number in found]
        at += 8 + length
