"""`make test`: all tests on four processes, then each failed test once more, alone.

Tests start real databases, schedulers and browsers, whose own deadlines pass on a crowded machine. A test that also
fails alone fails the suite. A test that passes alone is printed, because its dependence on load is a defect to mend.
"""

import subprocess
import sys

import pytest

MOST_REPEATED = 8
"""Largest number of failed tests that are run again. A crowded machine does not explain more."""


class FailureList:
    """Plug-in of pytest that collects the failed tests by their names."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.names.add(report.nodeid)


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


if __name__ == "__main__":
    sys.exit(run_suite(["-n", "4", "--dist", "worksteal", "tests"]))
