"""What memory knows is answered on the event loop; whatever it does not know, and every change, takes a thread."""

import pytest
from tests.unit.server.conftest import serving

from jobmeter.server.work import Lane


@pytest.fixture
def turns(monkeypatch):
    """Counts what takes a thread."""
    taken: list[str] = []
    run = Lane.run

    def counted(self, *arguments, **named):
        taken.append(self.name)
        return run(self, *arguments, **named)

    monkeypatch.setattr(Lane, "run", counted)
    return taken
