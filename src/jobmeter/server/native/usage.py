"""``/usage``: calls of a month, the free part, and the cost of the rest."""

from decimal import Decimal

from jobmeter.access.prices import Bill
from jobmeter.model.answers import UsageBody, UsageRow
from jobmeter.model.usage import Usage
from jobmeter.query.administration import UsageQuestion
from jobmeter.server.native.arguments import QueryArguments
from jobmeter.server.native.bodies import copy_fields
from jobmeter.server.native.endpoint import PROJECT, CallContext, Endpoint


def format_amount(value: Decimal | None) -> str | None:
    """Format an amount in plain digits: no exponent, no trailing zeros."""
    if value is None:
        return None
    text = f"{value:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


HEADING = "usage"


@Endpoint(
    "getUsage",
    "GET /usage",
    "usage:read",
    queries=(
        QueryArguments("month", "A month like 2026-11. Default: the current month.", example="2026-11"),
        PROJECT,
    ),
    lane="control",
)
def _usage(context: CallContext) -> UsageBody:
    """Show the calls of a month and their cost.

    Calls to this server are counted at once, calls to other servers within a second.
    """
    services = context.services
    name = context.arguments.read_text("month")
    month = services.calendar.parse_month(name) if name else services.calendar.find_month(services.clock.now_ms())
    services.usage.flush()
    found = context.ask(UsageQuestion(month.name))
    rows = [(one, services.prices.bill(one.api, one.operation, one.calls)) for one in found]
    return UsageBody(
        month=month.name,
        time_zone=services.calendar.zone,
        start=month.start_ms,
        end=month.end_ms,
        currency=services.prices.currency,
        charge=services.prices.charge.value,
        calls=sum(one.calls for one in found),
        failed=sum(one.failed for one in found),
        cost=format_amount(sum((bill.cost or Decimal(0) for _, bill in rows), Decimal(0))) or "0",
        usage=[_row(one, bill) for one, bill in rows],
    )


def _row(one: Usage, bill: Bill) -> UsageRow:
    return copy_fields(
        UsageRow,
        one,
        pricing=bill.pricing.value,
        free=bill.free,
        free_left=bill.free_left,
        unit_price=format_amount(bill.unit),
        cost=format_amount(bill.cost),
    )
