"""``/jobs/{job}/idle``: idle time of a job's devices, and its cost."""

from collections.abc import Iterable
from decimal import Decimal

import msgspec

from jobmeter.access.prices import Prices
from jobmeter.model.time import HOUR, SECOND
from jobmeter.query.idle import HOLD_MS, IDLE, IdleDevice, IdleQuestion
from jobmeter.server.native.endpoint import PROJECT, CallContext, Endpoint, job_ref, tagged

_CENT = Decimal("0.01")


class IdleDeviceBody(msgspec.Struct, frozen=True):
    """A device: seconds allocated, measured and idle; ``idle`` null: not measured.

    ``price_hour`` is null if the server's price file does not list the device.
    """

    node: str
    device: str
    type: str
    allocated: float
    measured: float
    idle: float | None
    price_hour: float | None


class IdleBody(msgspec.Struct, frozen=True):
    """All devices of a job in ``[start, end)``, in steps of ``step`` ms; device seconds.

    ``idle`` is null if no device was measured, ``cost`` if no idle device has a price. ``unpriced`` are the idle
    seconds of devices without a price, which ``cost`` leaves out.
    """

    job: str
    project: str
    start: int
    end: int
    step: int
    allocated: float
    measured: float
    idle: float | None
    currency: str
    cost: float | None
    unpriced: float
    devices: list[IdleDeviceBody]


def _idle(context: CallContext) -> IdleBody:
    """Show the idle time of a job's devices and its cost."""
    found = context.ask(IdleQuestion(job_ref(context)))
    job = found.view.job
    # The holder of a share link sees the times but not the prices.
    prices = None if context.scope.job is not None else context.services.prices
    measured = [one for one in found.devices if one.measured_ms]
    costs = [(one, _price(prices, one)) for one in measured]
    return IdleBody(
        job=job.id,
        project=job.project,
        start=found.span.start_ms,
        end=found.span.end_ms,
        step=found.step_ms,
        allocated=_seconds(one.allocated_ms for one in found.devices),
        measured=_seconds(one.measured_ms for one in measured),
        idle=_seconds(one.idle_ms for one in measured) if measured else None,
        currency=context.services.prices.currency,
        cost=_cost(costs),
        unpriced=_seconds(one.idle_ms for one, price in costs if price is None),
        devices=[_device(one, _price(prices, one)) for one in found.devices],
    )


def _price(prices: Prices | None, one: IdleDevice) -> Decimal | None:
    return None if prices is None else prices.device_hour(one.type)


def _cost(costs: Iterable[tuple[IdleDevice, Decimal | None]]) -> float | None:
    priced = [price * one.idle_ms / HOUR for one, price in costs if price is not None]
    return float(sum(priced, Decimal(0)).quantize(_CENT)) if priced else None


def _seconds(lengths: Iterable[int]) -> float:
    return sum(lengths) / SECOND


def _device(one: IdleDevice, price: Decimal | None) -> IdleDeviceBody:
    return IdleDeviceBody(
        node=one.node,
        device=one.device,
        type=one.type,
        allocated=one.allocated_ms / SECOND,
        measured=one.measured_ms / SECOND,
        idle=one.idle_ms / SECOND if one.measured_ms else None,
        price_hour=None if price is None else float(price),
    )


ENDPOINTS = tagged(
    "jobs",
    Endpoint(
        "getJobIdle",
        "GET /jobs/{job}/idle",
        "metrics:read",
        _idle,
        details=(
            f"A device is idle while its utilization is at most {IDLE:.0%} for {HOLD_MS // 60_000} minutes or longer, "
            "as in `getFleet` and the rule `gpu_idle_allocated`. Time without measurements does not count as "
            "idle. Long jobs are evaluated in steps of `step` ms: one busy sample makes a whole step busy. Prices come "
            "from `[devices]` in the server's price file; share links do not show prices."
        ),
        queries=(PROJECT,),
        by_resource=True,
    ),
)
