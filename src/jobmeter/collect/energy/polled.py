"""Power of the whole node by its management controller or a sensor, added up to energy: IPMI, Redfish, hwmon."""

import json
import logging
import math
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote

import urllib3

from jobmeter.collect import files
from jobmeter.collect.base import NodeIdentity
from jobmeter.collect.call_thread import CallThread
from jobmeter.collect.clock import read_elapsed_ns
from jobmeter.collect.energy.sources import CPU, NODE
from jobmeter.collect.host.base import NodeCollector, NodeReading
from jobmeter.collect.http_get import get
from jobmeter.errors import InvalidRequestError, UnavailableError

_EVERY_SECONDS = 60.0
_LONGEST_GAP = 300.0
"""Longest time in seconds between two readings over which their mean counts."""
_COMMANDS = (("ipmitool", "dcmi", "power", "reading"), ("ipmi-dcmi", "--get-system-power-statistics"))
_WATTS = re.compile(r"^\s*(?:Instantaneous power reading|Current Power)\s*:\s*(\d+(?:\.\d+)?) Watts", re.MULTILINE)
_INVALID = (
    "the address of Redfish must be https://[USER:PASSWORD@]HOST[/PATH]. Write special characters of the password "
    "with percent signs, such as %23 for #."
)
_SECONDS = 20.0
_MOST_BYTES = 2**20
_FAILURES = (
    *(OSError, subprocess.SubprocessError, UnavailableError),
    *(ValueError, TypeError, LookupError, OverflowError),  # an answer of another form
)
_METERS = frozenset({"power_meter", "acpi_power_meter"})
"""Names of hwmon chips that measure the whole machine, or the part that their text names."""
_SOCKET = re.compile(r"(\w+) Power Socket \d+")
_SOCKETS = {NODE: "Module", CPU: "Grace"}
"""Name of the part whose sockets are added up. A module of NVIDIA's Grace Hopper contains all of its parts."""

_log = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RedfishSettings:
    """Address of a management controller, ``https://[USER:PASSWORD@]HOST[/redfish/v1/Chassis/ID]``, and its CA."""

    url: str = field(repr=False)
    ca_file: Path | None = None


def parse_power(text: str) -> float | None:
    """Return the power in the output of ``ipmitool`` or ``ipmi-dcmi``, in watts; None if it has none."""
    match = _WATTS.search(text)
    return float(match[1]) if match else None


class IpmiPower:
    """Asks the local management controller. The power is None without a device or a program for it."""

    def __init__(self, dev_root: str = "/dev", which: Callable[[str], str | None] = shutil.which) -> None:
        self._devices = [Path(dev_root, name) for name in ("ipmi0", "ipmi/0", "ipmidev/0")]
        self._which = which

    @property
    def present(self) -> bool:
        """True if the kernel's driver of the controller is loaded."""
        return any(device.exists() for device in self._devices)

    def find_command(self) -> list[str] | None:
        """Return the command that reads the power; None if this machine cannot read it."""
        if not self.present:
            return None
        return next(([path, *words[1:]] for words in _COMMANDS if (path := self._which(words[0]))), None)

    def read(self) -> float | None:
        """Return the power in watts. Raises OSError or subprocess.SubprocessError."""
        command = self.find_command()
        if command is None:
            return None
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=True, errors="replace")
        return parse_power(done.stdout)


def read_sensor_power(kind: str = NODE, sys_root: str = "/sys") -> float | None:
    """Return the watts by the power meters that the kernel drives: of the whole machine, or of its processors.

    https://docs.kernel.org/hwmon/acpi_power_meter.html and the "Grace Performance Tuning Guide" (power telemetry).
    """
    found: dict[str, list[float]] = {}
    for name in files.list_names(f"{sys_root}/class/hwmon"):
        root = f"{sys_root}/class/hwmon/{name}"
        # Older kernels have these files in the folder of the chip's device, newer ones in the folder of the chip.
        if not _METERS.isdisjoint(files.read_text(f"{one}/name") for one in (root, f"{root}/device")):
            part = _SOCKET.match(_first(files.read_text, root, "power1_oem_info") or "")
            watts = _first(files.read_number, root, "power1_average", "power1_input")
            if watts is not None:
                found.setdefault(part[1] if part else "", []).append(watts * 1e-6)
    if kind == NODE and "" in found:
        return found[""][0]
    return sum(found.get(_SOCKETS[kind], ())) or None


def _first(read: Callable[[str], T | None], root: str, *names: str) -> T | None:
    """Return the first reading of these files of a chip, or of its device."""
    paths = (f"{folder}/{name}" for name in names for folder in (root, f"{root}/device"))
    return next((value for path in paths if (value := read(path)) not in (None, "")), None)


class RedfishPower:
    """Asks a management controller over HTTPS."""

    def __init__(self, settings: RedfishSettings) -> None:
        """Raise InvalidRequestError for an address that is not HTTPS."""
        try:
            url = urllib3.util.parse_url(settings.url)
            self._headers = urllib3.make_headers(basic_auth=unquote(url.auth)) if url.auth else {}
        except (urllib3.exceptions.LocationParseError, UnicodeEncodeError):
            raise InvalidRequestError(_INVALID, "redfish") from None  # their texts contain the password
        if url.scheme != "https" or not url.host:
            raise InvalidRequestError(_INVALID, "redfish")
        self._base = f"https://{url.netloc.rpartition('@')[2]}" if url.netloc else ""
        self._path = (url.path or "").rstrip("/")
        timeout = urllib3.Timeout(connect=5.0, read=_SECONDS)
        self._pool = urllib3.PoolManager(ca_certs=settings.ca_file and str(settings.ca_file), timeout=timeout)

    def read(self) -> float | None:
        """Return the power of the chassis in watts; of all chassis if the address names none. Raises UnavailableError.

        A chassis without a power control is left out, unless the address names it: then its environment metrics count.
        Of all chassis these could count the power of one device several times.
        """
        if "/Chassis/" in self._path:
            watts = self._read_chassis(self._path)
            return self._read_environment(self._path) if watts is None else watts
        members = self._get("/redfish/v1/Chassis").get("Members", [])
        chassis = [str(one.get("@odata.id", "")).rstrip("/") for one in members if isinstance(one, dict)][:16]
        # A path that does not begin with a slash would continue the name of the host, which gets the password.
        found = [watts for path in chassis if path.startswith("/") and (watts := self._read_chassis(path)) is not None]
        return sum(found) if found else None

    def _read_chassis(self, path: str) -> float | None:
        controls = self._get(f"{path}/Power").get("PowerControl", [])
        watts = controls[0].get("PowerConsumedWatts") if controls and isinstance(controls[0], dict) else None
        return float(watts) if isinstance(watts, int | float) else None

    def _read_environment(self, path: str) -> float | None:
        """Return the power by the resource that replaces ``Power`` since Redfish 2020.4."""
        found = self._get(f"{path}/EnvironmentMetrics").get("PowerWatts")
        watts = found.get("Reading") if isinstance(found, dict) else None
        return float(watts) if isinstance(watts, int | float) else None

    def _get(self, path: str) -> Mapping[str, Any]:
        status, body = get("Redfish", self._base, self._pool, self._base + path, self._headers, _MOST_BYTES)
        if status == 404:
            return {}
        if status != 200:
            raise UnavailableError(f"Redfish at {self._base} answers {status}; check the address and the password")
        try:
            found = json.loads(body)
        except ValueError as error:
            raise UnavailableError(f"the answer of Redfish at {self._base} is damaged: {error}") from error
        return found if isinstance(found, dict) else {}


class PowerPoller:
    """Reads one source once a minute in a thread, and adds the power up to energy by trapezoids."""

    def __init__(
        self,
        source: str,
        read: Callable[[], float | None],
        elapsed: Callable[[], int] = read_elapsed_ns,
        kind: str = NODE,
    ) -> None:
        """``kind`` is the part of the node that the source measures."""
        self.source, self.kind = source, kind
        self._read = read
        self._elapsed = elapsed
        self._calls: CallThread[tuple[float | None, int]] = CallThread(f"power {source} {kind}")
        self._asked_ns: int | None = None
        self._waits = False
        self._last: tuple[float, int] | None = None
        self._failed = False
        self._joules = 0.0

    def poll(self) -> tuple[float, float] | None:
        """Return the power in watts and the energy in joules if a new reading has arrived. Never waits."""
        if self._calls.busy:
            return None
        waits, self._waits = self._waits, False
        found = self._take_result() if waits else None
        now_ns = self._elapsed()
        if self._asked_ns is None or now_ns - self._asked_ns >= _EVERY_SECONDS * 1e9:
            self._asked_ns, self._waits = now_ns, True
            self._calls.begin(lambda: (self._read(), self._elapsed()))
        return found

    def wait(self, seconds: float) -> bool:
        """Wait at most ``seconds`` for the reading in progress. False if it has not ended."""
        return self._calls.wait(seconds)

    def _take_result(self) -> tuple[float, float] | None:
        try:
            watts, at_ns = self._calls.get_result()
        except _FAILURES as error:
            self._fail(error)
            return None
        if watts is None or not 0 < watts < math.inf:
            # A controller that does not measure says 0, and a node that runs draws power.
            self._fail("the source gives no power")
            return None
        self._failed = False
        if self._last is not None:
            before, then_ns = self._last
            seconds = (at_ns - then_ns) / 1e9
            self._joules += (before + watts) / 2 * seconds if seconds <= _LONGEST_GAP else 0.0
        self._last = watts, at_ns
        return watts, self._joules

    def _fail(self, error: object) -> None:
        """Log the first failure after a success."""
        if not self._failed:
            _log.warning("the power of the node cannot be read (%s): %s", self.source, error)
        self._failed = True


class PowerCollector(NodeCollector):
    """Collector of the power of the whole node, and of the energy that this power adds up to."""

    name = "host.power"
    metrics = ("node.power", "node.energy")

    def __init__(self, place: NodeIdentity, pollers: Sequence[PowerPoller]) -> None:
        super().__init__(place)
        self._pollers = pollers

    def _read(self) -> Iterator[NodeReading]:
        """Yield the readings that have arrived since the last call."""
        for poller in self._pollers:
            if found := poller.poll():
                labels = (("kind", poller.kind), ("source", poller.source))
                if poller.kind == NODE:
                    yield "node.power", labels[1:], found[0]
                yield "node.energy", labels, found[1]


def iterate_power_pollers(redfish: RedfishSettings | None) -> Iterator[PowerPoller]:
    """Yield a poller for each source of the power of this node. Raises InvalidRequestError for an invalid address."""
    for kind in _SOCKETS:
        if read_sensor_power(kind) is not None:
            yield PowerPoller("hwmon", partial(read_sensor_power, kind), kind=kind)
    if IpmiPower().find_command():
        yield PowerPoller("ipmi", IpmiPower().read)
    if redfish:
        yield PowerPoller("redfish", RedfishPower(redfish).read)
