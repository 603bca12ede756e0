"""Runs a ClickHouse server as a process: ``python clickhouse_node.py FOLDER``, until it is killed or its parent ends.

The engine of the package contains the whole server with its HTTP and native listeners. It reads ``config.xml`` in its
working folder, and keeps its tables in ``data`` below.
"""

import ctypes
import os
import signal
import sys
from pathlib import Path
from typing import Any

# Import this before entering the folder: the import opens an engine that reads the configuration too.
from chdb import _chdb

_PARENT_DEATH_SIGNAL = 1
_LISTEN = "SYSTEM START LISTEN HTTP; SYSTEM START LISTEN TCP"
# The engine serves as long as a statement runs.
_RUN = "SELECT sleepEachRow(3) FROM system.numbers SETTINGS max_block_size = 1"


def main() -> None:
    """Run the server in the folder of the command line."""
    parent = os.getppid()
    ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:
        return
    folder = Path(sys.argv[1])
    os.chdir(folder)
    query: Any = vars(_chdb)["query"]  # missing in its stubs
    done = query(f"{_LISTEN}; {_RUN}", "TabSeparated", path=str(folder / "data"))
    if done.has_error():
        sys.exit(done.error_message())


if __name__ == "__main__":
    main()
