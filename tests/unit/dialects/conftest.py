"""Fixtures that encode questions and results of golden cases, as between two processes."""

import pytest
from tests.support.encoding import drive_encoded

from jobmeter.testing import dialect


@pytest.fixture(autouse=True)
def _encoded(monkeypatch):
    monkeypatch.setattr(dialect, "drive", drive_encoded)
