"""``/jobs/{job}/idle`` and ``/devices/hours``: idle time of devices by job, project and user, and its cost."""

from collections.abc import Iterable, Sequence
from decimal import Decimal

import msgspec

from jobmeter.access.prices import Prices
from jobmeter.model.answers import DeviceHoursBody, DeviceHoursBucket, DeviceHoursGroup
from jobmeter.model.time import DAY, HOUR, SECOND, TimeRange
from jobmeter.query.device_hours import (
    MOST_BUCKETS,
    MOST_GROUPS,
    MOST_JOBS,
    DeviceHoursQuestion,
    DeviceTimeGroup,
    HoursBy,
)
from jobmeter.query.idle import HOLD_MS, IDLE, IdleDevice, IdleQuestion
from jobmeter.server.native.arguments import RANGE, QueryArguments
from jobmeter.server.native.endpoint import PROJECT, CallContext, Endpoint, make_job_ref

_CENT = Decimal("0.01")
_EVERY = {"1h": HOUR, "1d": DAY, "7d": 7 * DAY}
_HOURLY_MS, _DAILY_MS = 2 * DAY, 62 * DAY
"""Longest ranges that have buckets of an hour and of a day by default."""


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


HEADING = "jobs"


@Endpoint(
    "getJobIdle",
    "GET /jobs/{job}/idle",
    "metrics:read",
    details=f"A device is idle while its utilization is at most {IDLE:.0%} for {HOLD_MS // 60_000} minutes or longer, "
    "as in `getFleet` and the rule `gpu_idle_allocated`. Time without measurements does not count as "
    "idle. Long jobs are evaluated in steps of `step` ms: one busy sample makes a whole step busy. Prices come "
    "from `[devices]` in the server's price file; share links do not show prices.",
    queries=(PROJECT,),
    by_resource=True,
)
def _show_idle(context: CallContext) -> IdleBody:
    """Show the idle time of a job's devices and its cost."""
    found = context.ask(IdleQuestion(make_job_ref(context)))
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
    return None if prices is None else prices.price_device_hour(one.type)


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


@Endpoint(
    "listDeviceHours",
    "GET /devices/hours",
    "metrics:read",
    details="The times of a job are the periods that `getJobIdle` returns, cut at the bounds of the buckets. So the "
    "sum over the buckets is the total of the range. Devices that several jobs share count for each job. "
    "`cost` is the cost of the idle time. "
    f"At most {MOST_JOBS} jobs with devices and {MOST_BUCKETS} buckets; "
    f"beyond {MOST_GROUPS} groups, the rest is summed as `others`.",
    queries=(
        QueryArguments("by", "Group by `project` or `user`. Default: project."),
        QueryArguments(
            "every",
            f"Length of the buckets: {', '.join(_EVERY)}. They begin at midnight UTC, weeks on a Monday. "
            "Default: 1h for up to 2 days, 1d for up to 62, else 7d.",
            example="1d",
        ),
        *RANGE,
        PROJECT,
    ),
    tag="usage",
    by_resource=True,
)
def _hours(context: CallContext) -> DeviceHoursBody:
    """Show the device time of projects or users over a range."""
    start, end, since = context.arguments.read_times()
    end = context.services.clock.now_ms() if end is None else end
    start = max(0, end - (30 * DAY if since is None else since)) if start is None else start
    span = TimeRange(start, end)
    default = "1h" if span.length_ms <= _HOURLY_MS else "1d" if span.length_ms <= _DAILY_MS else "7d"
    every_ms = context.arguments.read_choice("every", _EVERY, default)
    by = context.arguments.read_choice("by", {one.value: one for one in HoursBy}, HoursBy.PROJECT)
    found = context.ask(DeviceHoursQuestion(range=span, every_ms=every_ms, by=by, projects=context.projects))
    prices = context.services.prices
    return DeviceHoursBody(
        start=span.start_ms,
        end=span.end_ms,
        every=every_ms,
        by=by.value,
        currency=prices.currency,
        groups=[_group(one, found.bounds, prices) for one in found.groups],
        others=None if found.others is None else _group(found.others, found.bounds, prices),
        combined=found.combined,
    )


def _group(one: DeviceTimeGroup, bounds: Sequence[int], prices: Prices) -> DeviceHoursGroup:
    types = [
        (prices.price_device_hour(own.type), list(zip(own.allocated_ms, own.measured_ms, own.idle_ms, strict=True)))
        for own in one.types
    ]
    return DeviceHoursGroup(
        name=one.name,
        jobs=one.jobs,
        total=_bucket(bounds[0], [(price, [sum(times) for times in zip(*each, strict=True)]) for price, each in types]),
        buckets=[_bucket(start, [(price, each[at]) for price, each in types]) for at, start in enumerate(bounds[:-1])],
    )


def _bucket(start: int, types: Sequence[tuple[Decimal | None, Sequence[int]]]) -> DeviceHoursBucket:
    """Add up types of devices: each has its price, and its allocated, measured and idle time in ms."""
    allocated, measured, idle = (sum(times[at] for _, times in types) for at in range(3))
    priced = [price * times[2] / HOUR for price, times in types if times[2] and price is not None]
    return DeviceHoursBucket(
        start=start,
        allocated=allocated / SECOND,
        used=(measured - idle) / SECOND if measured else None,
        idle=idle / SECOND if measured else None,
        cost=float(sum(priced, Decimal(0))) if priced else None,
        unpriced=_seconds(times[2] for price, times in types if price is None),
    )
