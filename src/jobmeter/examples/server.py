"""A temporary server with its own data folder, for the duration of a ``with`` block."""

import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from jobmeter.cli.local import await_server
from jobmeter.client.api import Api
from jobmeter.client.transport import Transport
from jobmeter.examples.acs3 import KeyPair

STOP_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnServer:
    """A running server: its API with the administrator's key, that key's pair for signatures, and its process."""

    api: Api
    pair: KeyPair
    token: str
    data: Path
    pid: int

    @property
    def environment(self) -> Mapping[str, str]:
        """Environment variables with which ``jobmeter`` uses this server and its folder."""
        return {
            "JOBMETER_SERVER": self.api.transport.server,
            "JOBMETER_KEY": self.token,
            "JOBMETER_DATA": str(self.data),
        }


class _AdminKey(msgspec.Struct):
    token: str
    access_key_id: str
    access_key_secret: str


@contextmanager
def run_server() -> Iterator[OwnServer]:
    """Run a server on a temporary folder, which is deleted afterwards.

    Raises UnavailableError if the server does not start.
    """
    with tempfile.TemporaryDirectory(prefix="jobmeter-") as folder:
        data = Path(folder) / "data"
        data.mkdir(mode=0o700)
        log = data / "server.log"
        command = [sys.executable, "-m", "jobmeter", "serve", "--data", str(data), "--port", "0"]
        with log.open("wb") as output, subprocess.Popen(command, stdout=output, stderr=output) as process:
            try:
                url = await_server(process, data, log)
                key = msgspec.json.decode((data / "admin.key").read_bytes(), type=_AdminKey)
                pair = KeyPair(key.access_key_id, key.access_key_secret)
                yield OwnServer(
                    api=Api(Transport(url, key.token)), pair=pair, token=key.token, data=data, pid=process.pid
                )
            finally:
                stop(process)


def stop(process: "subprocess.Popen[bytes]") -> None:
    """Terminate a process, and kill it if it does not end within 30 seconds."""
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
