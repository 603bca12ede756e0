"""Fixtures for the tests of discovery: a planted machine and its table of processes."""

import pytest
from tests.unit.collect.trees import HOST, plant

from jobmeter.collect.discover.classify import NodeClassifier
from jobmeter.collect.discover.containers import ContainerRuns
from jobmeter.collect.discover.table import ProcessTable


@pytest.fixture
def table(tmp_path):
    """Return an empty table of processes on a machine under ``tmp_path``."""
    plant(tmp_path, HOST)
    classifier = NodeClassifier("n1", f"{tmp_path}/proc", ContainerRuns(f"{tmp_path}/containers"))
    return ProcessTable(classifier, f"{tmp_path}/proc")
