"""Fixtures of this package: two real ClickHouse servers without Keeper, shared by the tests."""

from collections.abc import Iterator, Sequence

import pytest
from tests.support.clickhouse import NodeProcess, mortal_nodes


@pytest.fixture(scope="package")
def servers() -> Iterator[Sequence[NodeProcess]]:
    with mortal_nodes(2) as both:
        yield both
