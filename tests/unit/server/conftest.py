import pytest
from tests.support.encoding import EncodingExecutor, perform_encoded
from tests.support.serving import serving

from jobmeter.server import app, dialect_router
from jobmeter.server.native import endpoint


@pytest.fixture(autouse=True)
def _encoded(request, monkeypatch):
    """With ``--encode-questions``, encode questions and answers as if the executor was another process."""
    if request.config.getoption("--encode-questions"):
        monkeypatch.setattr(app, "Executor", EncodingExecutor)
        for module in (dialect_router, endpoint):
            monkeypatch.setattr(module, "perform", perform_encoded)


@pytest.fixture
def server(tmp_path):
    made = serving(tmp_path / "data")
    yield made
    made.application.close()
