"""Find the server for a verb, and start one on the data folder if none runs."""

import fcntl
import functools
import importlib.util
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

import click
import msgspec

from jobmeter.cli import completion
from jobmeter.cli.options import build_key_option, ca_file_option, data_option, find_data_folder
from jobmeter.client.api import PAGE, Api
from jobmeter.client.searches import JobSearch
from jobmeter.client.transport import Transport
from jobmeter.collect.files import make_folder
from jobmeter.errors import ConfigurationError, JobmeterError, NotFoundError, UnavailableError
from jobmeter.model.nearest import format_choices

DEFAULT_SERVER = "http://127.0.0.1:8400"
IDLE_EXIT_SECONDS = 600
"""Idle time in seconds after which a server started by a verb stops."""
START_SECONDS = 60.0
"""Longest time in seconds for a server to become ready."""

_T = TypeVar("_T")

LOOPBACK = {"127.0.0.1", "::1", "localhost"}


class _Listening(msgspec.Struct):
    """``DATA/server.json``: description of the listening server."""

    pid: int
    url: str


class _KeyFile(msgspec.Struct):
    token: str


def connect(
    server: str | None, key: str | None, data: Path | None, start: bool = True, ca_file: str | None = None
) -> Transport:
    """Connect to a server.

    The server is ``server`` or ``JOBMETER_SERVER``, else the one that listens for the data folder, else one on the
    default port that accepts the folder's key. If none runs and ``start`` is true, one is started on the data folder;
    it stops after ten idle minutes. The key is ``key`` or ``JOBMETER_KEY``, else the folder's administrator key, which
    is sent only to servers on this machine. ``ca_file`` has the certificates, in PEM, to verify the server.

    Raises UnavailableError or ConfigurationError with the remedy if no server can be reached.
    """
    server = server or os.environ.get("JOBMETER_SERVER") or None
    key = key or os.environ.get("JOBMETER_KEY") or None
    folder = find_data_folder(data)
    if server:
        return Transport(_address(server), key or _read_own_key(server, folder), ca_file=ca_file)
    found = find_listening(folder, ca_file)
    if found:
        return Transport(found, key or _key(folder), ca_file=ca_file)
    if _accepts(DEFAULT_SERVER, key or _key(folder)):
        return Transport(DEFAULT_SERVER, key or _key(folder))
    if not start:
        raise UnavailableError("no server answers: start one with `jobmeter serve`, or name one with --server")
    url = _start_server(folder.absolute(), ca_file)
    return Transport(url, key or _key(folder), ca_file=ca_file)


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalConnection:
    """Connection options of a verb, and the project of its query (None: any)."""

    server: str | None
    key: str | None
    data: Path | None
    project: str | None
    ca_file: str | None = None

    def open(self) -> Api:
        """Open the native API of the server that ``connect`` finds or starts."""
        return Api(self.connect())

    def connect(self, *, start: bool = True) -> Transport:
        """Connect to the server, see ``connect``."""
        return connect(self.server, self.key, self.data, start, self.ca_file)

    def make_environment(self, server: Transport) -> dict[str, str]:
        """Return the variables by which another ``jobmeter`` uses this server and this data folder."""
        return {
            "JOBMETER_SERVER": server.server,
            "JOBMETER_KEY": server.key,
            "JOBMETER_DATA": str(find_data_folder(self.data).absolute()),
        }

    def find(self, job: str) -> "NamedJob":
        """Find a job by id, unique prefix of an id, name, or ``last``."""
        return self.find_each((job,))[0]

    def find_each(self, jobs: Iterable[str]) -> "list[NamedJob]":
        """Find the named jobs, each once, in order."""
        api = self.open()
        return list(dict.fromkeys(self._find_job(api, job) for job in jobs))

    def _find_job(self, api: Api, job: str) -> "NamedJob":
        try:
            found = api.find(job, self.project)
        except NotFoundError:
            check_project(api, self.project)
            raise
        return NamedJob(api, found.id, found.project or self.project)


def check_project(api: Api, project: str | None) -> None:
    """Raise NotFoundError, with similar names, for a project without jobs while others have some."""
    if not project or api.list_jobs(JobSearch(project=project, limit=1)).jobs:
        return
    others = {job.project for job in api.list_jobs(JobSearch(limit=PAGE)).jobs}
    if others:
        raise NotFoundError(f"there are no jobs in project {project!r}{format_choices(project, others)}", "project")


class NamedJob(NamedTuple):
    """Job named on the command line, with the API to query it."""

    api: Api
    id: str
    project: str | None


_Verb = Callable[..., None]


def make_connection_options(project_help: str = "") -> Callable[[_Verb], _Verb]:
    """Add ``--server --key --data --ca-file`` to a verb, which gets them as one ``connection``.

    With a help text for it, also ``--project``.
    """

    def decorate(function: _Verb) -> _Verb:
        @functools.wraps(function)
        def call(**values: Any) -> None:  # noqa: ANN401 - what click parsed, each verb names its own
            own = {name: values.pop(name) for name in ("server", "key", "data", "ca_file")}
            function(connection=LocalConnection(**own, project=values.pop("project", None)), **values)

        project = click.option("--project", metavar="NAME", shell_complete=completion.projects, help=project_help)
        options = (
            *((project,) if project_help else ()),
            ca_file_option,
            data_option,
            build_key_option("The token of a key (JOBMETER_KEY)."),
            click.option("--server", metavar="URL", help="The server's URL (JOBMETER_SERVER)."),
        )
        return functools.reduce(lambda wrapped, option: option(wrapped), options, call)

    return decorate


connection_options = make_connection_options("The project of the job, if several have one of this id.")
listing_options = make_connection_options("Only this project.")
writing_options = make_connection_options("The project to write to (default: the key's project).")
server_options = make_connection_options()


def _address(server: str) -> str:
    address = server if "//" in server else f"http://{server}"
    parts = urlsplit(address)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ConfigurationError(f"--server {server!r} is not an address such as {DEFAULT_SERVER}")
    return address


def _read_own_key(server: str, folder: Path) -> str:
    # The folder's key gives full access: never send it to an address that may belong to others.
    described = _read_listening(folder)
    address = _address(server).rstrip("/")
    if urlsplit(address).hostname in LOOPBACK or (described is not None and described.url.rstrip("/") == address):
        return _key(folder)
    return ""


def _key(folder: Path) -> str:
    found = _decode_file(folder / "admin.key", _KeyFile)
    return found.token if found else ""


def _read_listening(folder: Path) -> _Listening | None:
    return _decode_file(folder / "server.json", _Listening)


def _decode_file(file: Path, shape: type[_T]) -> _T | None:
    try:
        return msgspec.json.decode(file.read_bytes(), type=shape)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None


def find_listening(folder: Path, ca_file: str | None) -> str | None:
    """Return the address of the data folder's own server if its process lives and it is ready."""
    described = _read_listening(folder)
    if described is None or not _lives(described.pid) or _problem(described.url, ca_file):
        return None
    return described.url


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        pass
    return True


def _accepts(url: str, key: str) -> bool:
    return bool(key) and not _problem(url, key=key, path="/api/jobmeter/v1/whoami")


def _problem(url: str, ca_file: str | None = None, key: str = "", path: str = "/readyz") -> str:
    """Send a request. Return the reason for a failure; empty for success."""
    transport = Transport(url, key, ca_file=ca_file, timeout=5.0)
    try:
        transport.request("GET", path)
    except JobmeterError as error:
        return error.message
    finally:
        transport.close()
    return ""


def _start_server(folder: Path, ca_file: str | None) -> str:
    """Return the address of a server on the folder, started by this process or simultaneously by another one."""
    missing = [name for name in ("chdb", "httptools", "sqlalchemy") if not importlib.util.find_spec(name)]
    if missing:
        raise ConfigurationError(
            "no server answers, and this installation cannot start one: "
            "pip install 'jobmeter[server]', or name a server with --server"
        )
    from jobmeter.kernel.library import require

    require()
    try:
        make_folder(folder)
        with _hold_start_lock(folder / "starting.lock"):
            return find_listening(folder, ca_file) or _launch(folder, ca_file)
    except OSError as error:
        raise ConfigurationError(f"the data folder {folder} cannot be used: {error.strerror}") from error


@contextmanager
def _hold_start_lock(lock: Path) -> Iterator[None]:
    """Hold a lock between processes; a waiter gives up after the time that a start may take."""
    deadline = time.monotonic() + START_SECONDS
    with lock.open("w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise UnavailableError(
                        f"another process has been starting a server for {START_SECONDS:.0f} s: "
                        f"see {lock.with_name('server.log')}"
                    ) from None
                time.sleep(0.1)
        yield


def _make_environment() -> dict[str, str]:
    """Return the environment of the local server: without workers, unless the user asks for them."""
    own = {name: value for name, value in os.environ.items() if name not in {"JOBMETER_HOST", "JOBMETER_PORT"}}
    return {"JOBMETER_PROCESSES": "1", **own}


def _launch(folder: Path, ca_file: str | None) -> str:
    log = folder / "server.log"
    command = [sys.executable, "-m", "jobmeter", "serve", "--data", str(folder), "--port", "0"]
    # Commands and addresses of jobs stand in it: for the owner alone, as everything in the folder.
    with open(log, "ab", opener=functools.partial(os.open, mode=0o600)) as output:
        begin = output.tell()
        process = subprocess.Popen(
            [*command, "--idle-exit", str(IDLE_EXIT_SECONDS)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            cwd="/",
            env=_make_environment(),
        )
    return await_server(process, folder, log, begin, ca_file)


def await_server(
    process: "subprocess.Popen[bytes]", folder: Path, log: Path, begin: int = 0, ca_file: str | None = None
) -> str:
    """Wait until the server in ``process`` is ready on its data folder. Returns its address.

    Raises UnavailableError with its log since ``begin`` if it ends or takes too long; then it is terminated.
    """
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        url = find_listening(folder, ca_file)
        if url:
            return url
        if process.poll() is not None:
            described = _read_listening(folder)
            # A server that cannot be verified holds the data folder: name the cause before the consequence.
            problem = _problem(described.url, ca_file) if described and _lives(described.pid) else ""
            ended = f"the server did not start (status {process.returncode}): {_end_of(log, begin)}"
            raise UnavailableError(f"{problem}; {ended}" if problem else ended)
        time.sleep(0.05)
    process.terminate()
    raise UnavailableError(f"the server was not ready after {START_SECONDS:.0f} s: {_end_of(log, begin)}")


def _end_of(log: Path, begin: int) -> str:
    """Return the last line that the server logged since ``begin``, and the path of the log."""
    with log.open("rb") as file:
        file.seek(begin)
        lines = [line.strip() for line in file.read().decode(errors="replace").splitlines() if line.strip()]
    return f"{lines[-1] if lines else 'it logged nothing'} (see {log})"
