"""Entry of a worker process: it replaces modules before it imports the others."""

import sys

from jobmeter.server.workers.owned import replace_modules


def run(connection: int, bound: int, level: int) -> None:
    """Run the worker with the descriptors of its connection and of the listening socket, and this log level."""
    replace_modules()
    from jobmeter.server.workers import http_worker  # noqa: PLC0415 - it imports the replaced modules

    http_worker.run(connection, bound, level)


if __name__ == "__main__":
    run(*map(int, sys.argv[1:]))
