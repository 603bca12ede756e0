"""The vendor's documented rate limits.

The figures are those of the page "PAI monitoring": GetUserViewMetrics per user, operations of resource logs per
account, operations of diagnosis without saying per whom: per user, as the operations beside them.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from msgspec.structs import replace

from jobmeter.access.limit import Per, Rate
from jobmeter.dialects.base import Operation

RATES: Mapping[str, Rate] = MappingProxyType(
    {
        "GetUserViewMetrics": Rate(100, 100, Per.KEY),
        "CreateDiagnosticTask": Rate(100, 100, Per.KEY),
        "ListDiagnosticResults": Rate(100, 100, Per.KEY),
        "DescribeDiagnosticResult": Rate(100, 100, Per.KEY),
        "DeleteResourceLog": Rate(10, 10, Per.ACCOUNT),
        "DescribeResourceLog": Rate(100, 100, Per.ACCOUNT),
    }
)
"""By the operation's name, which no two products share."""


def rated(operations: Sequence[Operation]) -> Sequence[Operation]:
    """The operations, with the rates of the table."""
    return [
        replace(operation, rate=RATES[operation.name]) if operation.name in RATES else operation
        for operation in operations
    ]
