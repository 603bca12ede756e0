"""A ClickHouse server of its own process: ``python clickhouse_node.py FOLDER``, until it is killed or its parent ends.

The engine that the package installs holds the whole server, HTTP and native listeners with it. It reads ``config.xml``
of the folder in which it works, and its tables are in ``data`` there.
"""

import ctypes
import os
import signal
import sys
from pathlib import Path
from typing import Any

# Loaded before the folder is entered: the import opens an engine of its own, which reads the configuration too.
from chdb import _chdb

_PARENT_DEATH_SIGNAL = 1
_LISTEN = "SYSTEM START LISTEN HTTP; SYSTEM START LISTEN TCP"
# The engine serves for as long as a statement runs.
_RUN = "SELECT sleepEachRow(3) FROM system.numbers SETTINGS max_block_size = 1"


def main() -> None:
    """Serve."""
    parent = os.getppid()
    ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:
        return
    folder = Path(sys.argv[1])
    os.chdir(folder)
    query: Any = vars(_chdb)["query"]  # its stubs leave it out
    done = query(f"{_LISTEN}; {_RUN}", "TabSeparated", path=str(folder / "data"))
    if done.has_error():
        sys.exit(done.error_message())


if __name__ == "__main__":
    main()
