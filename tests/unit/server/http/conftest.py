"""Fixtures for the tests of HTTP: each test runs with the application in the process, and behind a worker's border."""

import pytest
from tests.support import http_wire


@pytest.fixture(autouse=True, params=["one-process", "worker"])
def border(request, monkeypatch):
    monkeypatch.setattr(http_wire, "behind_worker", request.param == "worker")
