"""Random queries of PromQL, answered by a real Prometheus and by our evaluator from the same samples."""

import pytest
from benchmarks.install import program

from tests.support.judges import print_count
from tests.support.promql_random import compare

pytestmark = pytest.mark.slow

SEED, QUERIES = 13, 150
"""Number of queries. ``python -m tests.support.promql_random --queries 10000`` runs more."""


def test_random_queries_have_the_answers_of_prometheus(tmp_path):
    if program("prometheus") is None:
        pytest.skip("prometheus is not installed (Debian's package prometheus): make programs")
    differing = compare(SEED, QUERIES, tmp_path)
    print_count("random queries to a Prometheus", QUERIES - len(differing), QUERIES)
    assert differing == []
