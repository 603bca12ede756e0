"""Rules of the tests themselves."""

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
SLEEPS = TESTS / "waiting.py"
_SLEEP = re.compile(r"\bsleep\(")


def test_no_test_sleeps_but_to_wait_for_a_state():
    """A test that waits for another thread or process waits for its effect: see ``tests.waiting``."""
    found = [
        f"{path.relative_to(TESTS)}:{number}"
        for path in sorted(TESTS.rglob("*.py"))
        if path not in {SLEEPS, Path(__file__)}
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if _SLEEP.search(line)
    ]
    assert found == []
