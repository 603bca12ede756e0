"""``python -m jobmeter.examples.faults`` in a clone: measure the rules against the faults of `benchmarks/faults`."""

import sys

from jobmeter.errors import ConfigurationError, JobmeterError


def main() -> int:
    """Measure the rules and return the exit status. Raises ConfigurationError outside a clone of the source."""
    try:
        from benchmarks.faults.__main__ import main as measure  # noqa: PLC0415 - the wheel does not have it
    except ModuleNotFoundError as error:
        if error.name not in {"benchmarks", "benchmarks.faults"}:
            raise
        message = "the scripts that measure the rules are not here: run this command in the top folder of a clone"
        raise ConfigurationError(message) from error
    return measure()


if __name__ == "__main__":
    try:
        sys.exit(main())
    except JobmeterError as error:
        sys.exit(error.message)
