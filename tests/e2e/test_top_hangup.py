"""Tests of `jobmeter top` on a terminal that closes without a signal: the program ends instead of reading for ever."""

import pytest

from tests.support.processes import running
from tests.support.terminal import Terminal
from tests.support.waiting import SECONDS

HIDE_TEXTUAL = (
    "import importlib.util as u\nfound = u.find_spec\n"
    "u.find_spec = lambda name, *more: None if name == 'textual' else found(name, *more)\n"
)


@pytest.mark.parametrize("plain", [False, True], ids=["textual", "tables"])
def test_top_ends_when_its_terminal_is_gone(tmp_path, plain):
    environment = {}
    if plain:
        (tmp_path / "sitecustomize.py").write_text(HIDE_TEXTUAL)
        environment["PYTHONPATH"] = str(tmp_path)
    with running(tmp_path / "data") as server:
        environment |= {"JOBMETER_SERVER": server.url, "JOBMETER_KEY": server.token}
        # Use a terminal that does not control the process, so that its close sends no SIGHUP, as under nohup.
        terminal = Terminal(80, 24, "top", **environment)
        looks = iter(range(50))
        terminal.read(lambda: any("UTC" in line for line in terminal.screen.display) or next(looks, None) is None)
        try:
            terminal.hang_up()
            status = terminal.process.wait(SECONDS)
        finally:
            terminal.process.kill()
            terminal.process.wait()
    # The tables cannot restore a closed terminal. The test checks only that they end.
    assert plain or status == 0
