"""Runs all tests on six processes, then each failed test again, alone: `make test`.

Six processes keep two processors busy, because many tests wait for servers, browsers or the end of a lease.

Tests start real databases, schedulers and browsers, whose own deadlines pass on a crowded machine. A test that also
fails alone fails the suite. The suite prints a test that passes alone, because its dependence on load is a defect.
"""

import subprocess
import sys
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

import pytest

MOST_REPEATED = 8
"""Largest number of failed tests that run again. A crowded machine does not explain more failures."""


class FailureList:
    """Plug-in of pytest that collects the names of failed tests."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and report.nodeid not in self.names:
            self.names.add(report.nodeid)
            print(f"\nFAILED {report.nodeid}", flush=True)  # an aborted run prints no summary


def is_waiting(module: Sequence[pytest.Item]) -> bool:
    """Return True for a module whose tests start programs, and mostly wait for them."""
    return "e2e" in module[0].path.parts or is_slow(module)


def is_slow(module: Sequence[pytest.Item]) -> bool:
    """Return True for a module with tests of more than ten seconds."""
    return any(item.get_closest_marker("slow") for item in module)


def deal(items: Sequence[pytest.Item], processes: int) -> list[pytest.Item]:
    """Order tests so that waiting and computing tests run side by side from the beginning to the end.

    pytest-xdist gives each process a part of the list. Every other part begins with waiting tests, and the other parts
    end with them. A module with slow tests begins each part, so that no process is left with one at the end. A module
    stays whole, because its tests share servers.
    """
    modules = [list(module) for _, module in groupby(items, key=lambda item: item.path)]
    waiting = sorted(filter(is_waiting, modules), key=is_slow, reverse=True)
    computing = [item for module in modules if not is_waiting(module) for item in module]
    dealt: list[pytest.Item] = []
    for number in range(processes):
        part = waiting[number::processes]
        first = [item for module in part if is_slow(module) for item in module]
        others = [item for module in part if not is_slow(module) for item in module]
        size = max(0, (len(items) - len(dealt)) // (processes - number) - len(first) - len(others))
        quick, computing = computing[:size], computing[size:]
        dealt += first + (others + quick if number % 2 == 0 else quick + others)
    return dealt + computing


def run_suite(arguments: list[str]) -> int:
    """Run pytest with these arguments, then the failed tests alone. Return the exit status."""
    failures = FailureList()
    status = pytest.main(["-q", *arguments], plugins=[failures])
    names = sorted(failures.names)
    if status != pytest.ExitCode.TESTS_FAILED or not 0 < len(names) <= MOST_REPEATED:
        return int(status)
    print(f"Running {len(names)} failed tests again, alone.", flush=True)
    again = subprocess.run([sys.executable, "-m", "pytest", "-q", *names], check=False).returncode
    if again == 0:
        print("These tests failed beside others and passed alone. Mend them:", *names, sep="\n  ")
    return again


def compile_tests(root: Path) -> None:
    """Collect the tests of a new folder on two processors, so that their compiled forms exist.

    Otherwise each of the six processes would compile all of them, with ten seconds of computing each.
    """
    if any((root / "__pycache__").glob("conftest.*-pytest-*.pyc")):
        return
    unit = root / "unit"
    command = [sys.executable, "-m", "pytest", "--collect-only", "-qq"]
    halves = ([unit], [root, f"--ignore={unit}"])
    running = [subprocess.Popen([*command, *half], stdout=subprocess.DEVNULL) for half in halves]
    for process in running:
        process.wait()


if __name__ == "__main__":
    compile_tests(Path(__file__).parent)
    sys.exit(run_suite(["-n", "6", "--dist", "worksteal", "tests"]))
