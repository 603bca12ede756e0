"""Fixtures of this package: four real ClickHouse servers without Keeper, two shards with two replicas each."""

from collections.abc import Iterator, Sequence

import pytest
from tests.support.clickhouse import NodeProcess, mortal_nodes


@pytest.fixture(scope="package")
def servers() -> Iterator[Sequence[NodeProcess]]:
    with mortal_nodes(4) as four:
        yield four
