"""All checks of the doctor, in order."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from jobmeter.client.transport import Transport
from jobmeter.collect.doctor.base import Check, SourceStatus, run_checks
from jobmeter.collect.doctor.delivery import check_server, check_spool
from jobmeter.collect.doctor.devices import list_device_checks
from jobmeter.collect.doctor.kernel import check_kernel
from jobmeter.collect.doctor.processes import check_events
from jobmeter.collect.doctor.rights import check_rights
from jobmeter.collect.doctor.schedulers import check_schedulers
from jobmeter.collect.machine import Machine
from jobmeter.model.time import Clock
from jobmeter.plugins import PluginKind, load_plugins

PATIENCE = 60.0
"""Time limit in seconds of one check. Drivers that start their devices first take longest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Questions:
    """Arguments of the doctor besides the machine. ``transport`` is absent without a server."""

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
        **list_device_checks(machine),
        ("schedulers", "check"): lambda: check_schedulers(machine, *schedulers),
        ("delivery", "server"): lambda: check_server(transport, clock),
        ("delivery", "spool"): lambda: check_spool(machine, spool, clock),
        ("plug-ins", "check"): _check_plugins,
    }
    return run_checks(areas, patience)


def _check_plugins() -> Iterator[Check]:
    """Load the plug-ins of every kind. A broken one is a problem."""
    plugins = [plugin for kind in PluginKind for plugin in load_plugins(kind)]
    for one in plugins:
        text = one.problem if one.error else f"{one.name} of {one.package}"
        yield Check("plug-ins", one.kind, SourceStatus.PROBLEM if one.error else SourceStatus.OK, text)
    if not plugins:
        yield Check("plug-ins", "none", SourceStatus.ABSENT, "no installed package has a plug-in")
