"""Temperatures, fans and power by the kernel's drivers of sensors, and throttling by heat: hwmon and thermal_throttle.

https://docs.kernel.org/hwmon/sysfs-interface.html
"""

import re
from collections import Counter
from collections.abc import Iterator

from jobmeter.collect import files
from jobmeter.collect.host.base import NodeCollector, NodeReading
from jobmeter.collect.text import make_label_value

_KINDS = {
    "temp": (("input",), "node.temperature", 1e-3),
    "fan": (("input",), "node.fan.speed", 1.0),
    "power": (("input", "average"), "node.sensor.power", 1e-6),
}
"""Files of a value, best first, its metric, and its scale, by the kind of a sensor."""
_SENSOR = re.compile(r"(temp|fan|power)(\d+)_(?:input|average)")
_THROTTLED = "node.cpu.throttled"
_MOST_SENSORS = 512


class SensorCollector(NodeCollector):
    """Collector of sensors. Some drivers ask a slow controller for each file, so not every turn reads them."""

    name = "host.sensors"
    metrics = (*(metric for _, metric, _ in _KINDS.values()), _THROTTLED)

    def _read(self) -> Iterator[NodeReading]:
        yield from self._read_sensors()
        for package, count in self._count_throttles().items():
            yield _THROTTLED, (("package", package),), count

    def _read_sensors(self) -> Iterator[NodeReading]:
        """Yield the connected sensors without a fault.

        Chips of one name have the names of their devices appended: the numbers of their folders may change at each
        boot.
        """
        folder = f"{self._sys}/class/hwmon"
        directories = sorted(files.list_names(folder), key=_number)
        chips = {one: make_label_value(files.read_text(f"{folder}/{one}/name")) or one for one in directories}
        same = Counter(chips.values())
        count = 0
        for directory, chip in chips.items():
            root = f"{folder}/{directory}"
            if same[chip] > 1:
                device = files.read_link_target(f"{root}/device").rpartition("/")[2] or _number(directory)
                chip = make_label_value(f"{chip}-{device}")  # noqa: PLW2901 - the full name
            found = {(match[1], int(match[2])) for name in files.list_names(root) if (match := _SENSOR.fullmatch(name))}
            for kind, number in sorted(found):
                ends, metric, scale = _KINDS[kind]
                sensor = f"{root}/{kind}{number}"
                if files.read_number(f"{sensor}_fault"):
                    continue
                value = next((read for end in ends if (read := files.read_number(f"{sensor}_{end}")) is not None), None)
                if value is None or (count := count + 1) > _MOST_SENSORS:
                    continue
                label = make_label_value(files.read_text(f"{sensor}_label"))
                yield metric, (("chip", chip), ("sensor", make_label_value(f"{kind}{number} {label}"))), value * scale

    def _count_throttles(self) -> dict[str, int]:
        """Return the number of times that heat slowed each package down. The CPUs of a package repeat its count."""
        found: dict[str, int] = {}
        folder = f"{self._sys}/devices/system/cpu"
        for name in files.list_names(folder):
            count = files.read_number(f"{folder}/{name}/thermal_throttle/package_throttle_count")
            if count is not None:
                package = files.read_text(f"{folder}/{name}/topology/physical_package_id") or "0"
                found[package] = max(count, found.get(package, 0))
        return found


def _number(directory: str) -> int:
    """Return the number at the end of a directory's name."""
    match = re.search(r"\d+$", directory)
    return int(match[0]) if match else 0
