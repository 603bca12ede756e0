"""Repeats the property tests with new examples until a time limit or a failure: `make search`.

At the same time readers of a shared window look for torn values, unless the command line names tests.

The search prints a failing example, and the next search tries it first. After the fix it becomes an `@example` of its
test, or a separate test.
"""

import argparse
import subprocess
import sys
import time

NO_TESTS_COLLECTED = 5


def main() -> int:
    """Return the status of the first round that fails, else 0. Every started round is finished."""
    parser = argparse.ArgumentParser(prog="make search", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="begin no further round after this long")
    parser.add_argument("paths", nargs="*", default=["tests"], help="the tests: all of them by default")
    options = parser.parse_args()
    end, rounds = time.monotonic() + 60 * options.minutes, 0
    command = [sys.executable, "-m", "pytest", "-q", "-m", "hypothesis", "--hypothesis-profile=search", *options.paths]
    beside = [sys.executable, "-m", "tests.support.shared_window", "--seconds", str(60 * options.minutes)]
    stress = subprocess.Popen(beside if options.paths == ["tests"] else ["true"])
    while not rounds or time.monotonic() < end:
        rounds += 1
        status = subprocess.run(command, check=False).returncode
        if status:
            stress.terminate()
            sys.stdout.write(f"round {rounds} found something\n" if status != NO_TESTS_COLLECTED else "no tests\n")
            return status
    if stress.wait():
        sys.stdout.write("a reader of the shared window found something\n")
        return 1
    sys.stdout.write(f"{rounds} rounds, nothing found\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
