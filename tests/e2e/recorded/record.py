"""Records a data folder with the program on PYTHONPATH; see ``facts``. ``python record.py COMMIT``."""

import json
import sys
import tarfile
import tempfile
from pathlib import Path

from tests.e2e.recorded.facts import ENVIRONMENT, JOB, LATE, LINES, csv, facts
from tests.support.processes import ServerProcess, run_cli
from tests.support.waiting import wait_until


def write(server: ServerProcess, text: str) -> None:
    """Import samples."""
    file = server.data.with_name("samples.csv")
    file.write_text(text)
    done = run_cli("import", str(file), "--server", server.url, "--key", server.token)
    assert done.returncode == 0, done.stdout + done.stderr


def main() -> None:
    """Fill a folder, stop and restart the server, write a little, kill the server, and pack the folder."""
    rows = list(facts())
    with tempfile.TemporaryDirectory() as home:
        data = Path(home) / "data"
        server = ServerProcess(data, environment=ENVIRONMENT).start()
        server.request("POST", "/jobs", {"jobs": [JOB]})
        write(server, csv(rows[:-LATE]))
        server.request("POST", "/jobs/recorded/logs", {"lines": LINES})
        wait_until(lambda: server.request("GET", "/status").json()["rows"].get("hours"), "the roll-ups", 600)
        server.stop()
        server.start()
        write(server, csv(rows[-LATE:]))
        server.kill()
        with tarfile.open(Path(__file__).with_name(f"{sys.argv[1]}.tar.xz"), "w:xz") as archive:
            archive.add(data, "data")
    sys.stdout.write(json.dumps({"samples": len(rows)}) + "\n")


if __name__ == "__main__":
    main()
