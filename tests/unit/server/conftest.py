import pytest
from tests.serving import serving


@pytest.fixture
def server(tmp_path):
    made = serving(tmp_path / "data")
    yield made
    made.application.close()
