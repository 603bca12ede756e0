"""All checks in order, and the checks of devices and of process events."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from jobmeter.client.transport import Transport
from jobmeter.collect.accelerators import registry
from jobmeter.collect.accelerators.device import Accelerator
from jobmeter.collect.accelerators.names import DeviceNames
from jobmeter.collect.accelerators.vendor import Driver, DriverProblem, Vendor
from jobmeter.collect.base import Machine
from jobmeter.collect.doctor.base import Check, SourceStatus, run_checks
from jobmeter.collect.doctor.delivery import check_server, check_spool
from jobmeter.collect.doctor.kernel import check_kernel
from jobmeter.collect.doctor.rights import check_rights
from jobmeter.collect.doctor.schedulers import check_schedulers
from jobmeter.collect.process_events.connector import Connector, counts_file
from jobmeter.collect.process_events.netlink import EventSocket
from jobmeter.collect.process_events.taskstats import TaskStats
from jobmeter.model.device import DeviceState
from jobmeter.model.time import Clock, SystemClock, iso
from jobmeter.plugins import PluginKind, load_plugins

_ADVICE = "give the service CAP_NET_ADMIN (deploy/systemd/agent-events.conf), in the machine's own namespaces"


def check_events(
    spool: Path,
    begins: Callable[[], EventSocket] = lambda: Connector(ends=True),
    ends: Callable[[], EventSocket] = TaskStats,
) -> Iterator[Check]:
    """Check the kernel's events of processes; reports what an agent on this spool has missed."""
    no_begins, no_ends = _problem(begins), _problem(ends)
    if no_begins:
        status, advice = SourceStatus.LIMITED, _ADVICE
        text = f"processes that begin and end between two samples are missed: their events cannot be read ({no_begins})"
    elif no_ends:
        status, advice = SourceStatus.LIMITED, _ADVICE
        text = f"short processes are found, but their last usage cannot be read ({no_ends})"
    else:
        status, advice = SourceStatus.OK, ""
        text = "the kernel reports processes that begin and end between two samples, with their usage"
    counts = counts_file(spool).load()
    if counts is not None:
        most = "at most " if counts.problem else ""
        text += f"; since {iso(counts.since_ms)} the agent has missed {most}{counts.missed:,} processes"
    yield Check("kernel", "events", status, text, advice)


def _problem(open_source: Callable[[], EventSocket]) -> str:
    try:
        open_source().close()
    except OSError as error:
        return error.strerror or str(error)
    return ""


_AREA = "devices"
_PATIENCE = 8.0
"""Time limit in seconds for a driver and its devices. Without persistence mode NVIDIA's starts each GPU first."""
_MOST = 4
"""Most devices that are named with their states."""


def device_checks(
    machine: Machine, patience: float = _PATIENCE
) -> dict[tuple[str, str], Callable[[], Iterable[Check]]]:
    """Return a check of each vendor by area and name. ``patience``: seconds for a driver."""
    return {(_AREA, vendor.name): partial(_check_vendor, machine, vendor, patience) for vendor in registry.vendors()}


def _check_vendor(machine: Machine, vendor: Vendor[Any], patience: float) -> list[Check]:
    driver: Driver[Accelerator] = vendor.open(SystemClock(), machine, patience)
    check = check_found(machine, vendor, driver.devices(), driver.problem)
    driver.close()
    return [check]


def check_found(
    machine: Machine, vendor: Vendor[Any], found: Sequence[Accelerator], problem: DriverProblem | None
) -> Check:
    """Check the devices that a driver shows, and the reason why it cannot be used."""
    noun = vendor.noun
    if not found and not vendor.is_present(machine):
        return Check(_AREA, vendor.name, SourceStatus.ABSENT, f"the machine has no {vendor.title} {noun}")
    if problem is not None:
        text = f"no {noun} is measured: {problem.text} ({problem.state})"
        return Check(_AREA, vendor.name, SourceStatus.PROBLEM, text, vendor.advice.get(problem.state, vendor.help))
    if not found:
        return Check(_AREA, vendor.name, SourceStatus.ABSENT, f"the driver shows no {vendor.title} {noun}")
    device_name = DeviceNames(registry.vendors(), machine).of(vendor)
    device_name.place(found)
    states = [(device, DeviceState.HANGS if device.busy else device.state) for device in found]
    missing = [(device, state) for device, state in states if state is not DeviceState.MEASURED]
    products = ", ".join(sorted({device.name for device in found if device.name}))
    if missing:
        each = "; ".join(
            f"{device_name(device.index)}: {_explain_state(device, state)}" for device, state in missing[:_MOST]
        )
        more = f"; and {len(missing) - _MOST} more" if len(missing) > _MOST else ""
        text = f"{len(found) - len(missing)} of {len(found)} {noun}s are measured ({products}); {each}{more}"
        return Check(_AREA, vendor.name, SourceStatus.PROBLEM, text, vendor.advice.get(missing[0][1], vendor.help))
    whole = sum(device.part is None for device in found)
    if len(files := vendor.files(machine)) > whole:
        text = f"{whole} of {len(files)} {noun}s answer ({products})"
        return Check(_AREA, vendor.name, SourceStatus.PROBLEM, text, vendor.help)
    parts = f" and {len(found) - whole} partitions of them" if len(found) > whole else ""
    return Check(_AREA, vendor.name, SourceStatus.OK, f"{whole} {noun}s{parts} ({products})")


def _explain_state(device: Accelerator, state: DeviceState) -> str:
    return f"{state} ({device.reason})" if device.reason else str(state)


PATIENCE = 60.0
"""Seconds that one check may take: the longest waits are for drivers that start their devices first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Questions:
    """Arguments of the doctor besides the machine; ``transport`` is absent if no server is given."""

    environment: Mapping[str, str]
    transport: Transport | None
    spool: Path
    kubeconfig: str | None = None
    flink: str | None = None


def examine(machine: Machine, questions: Questions, clock: Clock, patience: float = PATIENCE) -> list[Check]:
    """Run every check and return its results. A check that has not returned after ``patience`` seconds is a problem."""
    transport, spool = questions.transport, questions.spool
    schedulers = questions.environment, questions.kubeconfig, questions.flink
    areas: Mapping[tuple[str, str], Callable[[], Iterable[Check]]] = {
        ("rights", "check"): lambda: check_rights(machine),
        ("kernel", "check"): lambda: check_kernel(machine),
        ("kernel", "events"): lambda: check_events(spool),
        **device_checks(machine),
        ("schedulers", "check"): lambda: check_schedulers(machine, *schedulers),
        ("delivery", "server"): lambda: check_server(transport, clock),
        ("delivery", "spool"): lambda: check_spool(machine, spool, clock),
        ("plug-ins", "check"): _check_plugins,
    }
    return run_checks(areas, patience)


def _check_plugins() -> Iterator[Check]:
    """Load the plug-ins of every kind; a broken one is a problem."""
    plugins = [plugin for kind in PluginKind for plugin in load_plugins(kind)]
    for one in plugins:
        text = one.problem if one.error else f"{one.name} of {one.package}"
        yield Check("plug-ins", one.kind, SourceStatus.PROBLEM if one.error else SourceStatus.OK, text)
    if not plugins:
        yield Check("plug-ins", "none", SourceStatus.ABSENT, "no installed package has a plug-in")
