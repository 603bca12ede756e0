"""How often the vendor's operations may be called, where it says so.

The figures are those of the page "PAI monitoring": GetUserViewMetrics per user, operations of resource logs per
account, operations of diagnosis without a word of whom: of each user, as its neighbours.
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
    """The same operations, those of the table with its rate."""
    return [
        replace(operation, rate=RATES[operation.name]) if operation.name in RATES else operation
        for operation in operations
    ]
