"""All checks in order; an error in one does not affect the others."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from jobmeter.client.transport import Transport
from jobmeter.collect.doctor.base import Check, Machine, Status
from jobmeter.collect.doctor.delivery import check_server, check_spool
from jobmeter.collect.doctor.devices import check_devices
from jobmeter.collect.doctor.kernel import check_kernel
from jobmeter.collect.doctor.plugins import check_plugins
from jobmeter.collect.doctor.processes import check_events
from jobmeter.collect.doctor.rights import check_rights
from jobmeter.collect.doctor.schedulers import check_schedulers
from jobmeter.model.time import Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class Questions:
    """Arguments of the doctor besides the machine; ``transport`` is absent if no server is given."""

    environment: Mapping[str, str]
    transport: Transport | None
    spool: Path
    kubeconfig: str | None = None
    flink: str | None = None


def examine(machine: Machine, questions: Questions, clock: Clock) -> Iterator[Check]:
    """Run every check and yield its results."""
    areas: tuple[tuple[str, Callable[[], Iterable[Check]]], ...] = (
        ("rights", lambda: check_rights(machine)),
        ("kernel", lambda: check_kernel(machine)),
        ("kernel", lambda: check_events(questions.spool)),
        ("devices", lambda: check_devices(machine)),
        (
            "schedulers",
            lambda: check_schedulers(machine, questions.environment, questions.kubeconfig, questions.flink),
        ),
        ("delivery", lambda: check_server(questions.transport, clock)),
        ("delivery", lambda: check_spool(machine, questions.spool, clock)),
        ("plug-ins", check_plugins),
    )
    for area, make in areas:
        try:
            yield from make()
        except Exception as error:  # noqa: BLE001 - whatever fails must not take the other checks along
            yield Check(area, "check", Status.PROBLEM, f"a check failed: {error}"[:1_000])
