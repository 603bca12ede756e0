"""Entry of a worker process: it replaces modules before it imports the others."""

import sys

from jobmeter.server.workers.owned import replace_modules


def main() -> None:
    """Run the worker whose descriptors (connection, listening socket) and log level are the arguments."""
    replace_modules()
    from jobmeter.server.workers.http_worker import run  # noqa: PLC0415 - it imports the replaced modules

    run(*map(int, sys.argv[1:]))


if __name__ == "__main__":
    main()
