"""Golden cases are run as if the answers came from another process: questions and results are encoded."""

import pytest
from tests.support.encoding import drive_encoded

from jobmeter.testing import dialect


@pytest.fixture(autouse=True)
def _encoded(monkeypatch):
    monkeypatch.setattr(dialect, "drive", drive_encoded)
