"""`make search`: the property tests over and over with new examples, until the time is over or one of them fails.

Beside them readers of a shared window look for torn values all the time, unless the tests are named.

A failing example is printed, and tried first by the next search. When it is mended it becomes an `@example` of its
test, or a test of its own.
"""

import argparse
import subprocess
import sys
import time

NO_TESTS_COLLECTED = 5


def main() -> int:
    """Returns the status of the first round that fails, else 0. A round that was begun is finished."""
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
