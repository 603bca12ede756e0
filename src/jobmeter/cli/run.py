"""``jobmeter run``: runs a command as a job, without changing its behaviour."""

import logging
import os
import pwd
import re
import shlex
import shutil
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import click

from jobmeter.cli.attempt import determine_attempt
from jobmeter.cli.options import (
    build_interval_option,
    build_key_option,
    ca_file_option,
    check_option,
    data_option,
    define_verb,
    find_data_folder,
    parse_interval,
)
from jobmeter.cli.program_options import add_program_options
from jobmeter.client.transport import Transport
from jobmeter.collect.base import NodeIdentity
from jobmeter.collect.clock import SampleClock
from jobmeter.collect.launch.lease import lease_owner
from jobmeter.collect.launch.plan import LaunchPlan, make_job_id, name_job
from jobmeter.collect.launch.result import Result
from jobmeter.collect.launch.session import JobRun
from jobmeter.collect.launch.tracking import may_track
from jobmeter.collect.reports.settings import ProgramSettings
from jobmeter.collect.spool import Spool
from jobmeter.collect.text import escape_invalid
from jobmeter.errors import ConflictError, JobmeterError
from jobmeter.model.series import check_job_id, check_project
from jobmeter.model.time import SystemClock

if TYPE_CHECKING:
    from jobmeter.collect.launch.attach import AttachTarget

_FIRST_LINE = 256
"""Bytes that Linux reads of the first line of a script: see execve(2)."""
_INTERPRETERS = {".py": "python", ".sh": "bash"}
_NOT_FOUND = 127
_NOT_EXECUTABLE = 126
_SHORTEST_INTERVAL_MS = 100
_LOST = {
    "expired": "they were older than the server's retention; raise that retention",
    "future": "they were ahead of the server's clock; check the clocks of both machines",
    "memory.full": "the server did not answer for too long, and the disk could not be written; check both",
    "refused": "the server refused them as invalid; `rejected` in the spool has them with the reason",
    "spool.full": "the server did not answer for too long; check the server",
}
"""Cause and remedy of lost samples, by reason."""


_GROUPS = {
    "Job": ("name", "kind", "replicas", "job_id", "project", "pid"),
    "Measurement": ("interval", "logs", "pass_key"),
    "Numbers of the program": ("form", "socket", "statsd", "otlp"),
}


@define_verb(
    "jobmeter run -- python train.py",
    "jobmeter run --name resnet --replicas 4 -- python train.py",
    groups=_GROUPS,
    context_settings={"allow_interspersed_args": False},
)
@click.option("--name", metavar="NAME", help="Name of the job (default: derived from the command).")
@click.option("--type", "kind", default="", metavar="TYPE", help="Type of the job, such as PyTorchJob.")
@click.option(
    "--replicas",
    type=click.IntRange(1, 1024),
    metavar="N",
    default=1,
    help="Number of copies to start, with a rank each.",
)
@click.option("--server", metavar="URL", help="Server to send the samples to (JOBMETER_SERVER).")
@build_key_option("The token of a key that may write (JOBMETER_KEY).")
@data_option
@ca_file_option
@build_interval_option("1s")
@click.option("--job-id", metavar="ID", help="Id of the job (default: its name, the day and six characters).")
@click.option("--project", metavar="NAME", help="Project of the job (default: the key's project).")
@click.option("--logs/--no-logs", default=True, show_default=True, help="Store the command's output as log lines.")
@click.option(
    "--pid",
    type=click.IntRange(1, 2**22),
    metavar="PID",
    help="Measure this running process and its descendants instead of a command.",
)
@add_program_options("one of this run's own", output=True)
@click.option("--pass-key", is_flag=True, help="Pass JOBMETER_KEY to the command (default: it is removed).")
@click.option("--quiet", is_flag=True, help="Print errors only.")
@click.argument("words", metavar="[--] COMMAND...", nargs=-1, type=click.UNPROCESSED)
def command(  # noqa: PLR0913 - one for each option
    *,
    name: str | None,
    kind: str,
    replicas: int,
    server: str | None,
    key: str | None,
    data: Path | None,
    ca_file: str | None,
    interval: str,
    job_id: str | None,
    project: str | None,
    logs: bool,
    pid: int | None,
    pass_key: bool,
    quiet: bool,
    programs: ProgramSettings,
    words: tuple[str, ...],
) -> None:
    """Run COMMAND as a job and measure it, or measure a running process. The exit status is the command's.

    With --pid, Ctrl-C ends the measurement, not the process. The job's state is then Unknown, unless a record has it.
    """
    _check_usage(pid, replicas, words, pass_key=pass_key)
    _open_streams()
    clock = SampleClock(SystemClock())
    target = None if pid is None else _target_of(pid, clock)
    shown = name or name_job(words := target.command if target else words)
    job = check_option(check_job_id, job_id, "--job-id") if job_id else make_job_id(shown, clock)
    place = NodeIdentity(read_node_name(), project=check_option(check_project, project, "--project") if project else "")
    interval_ms = parse_interval(interval, _SHORTEST_INTERVAL_MS)
    spool = _spool(find_data_folder(data), job, server or _read_server_address())
    connect = _connector(server, key, data, ca_file)
    with ExitStack() as stack:
        if spool:
            stack.callback(spool.remove_folder)
            stack.callback(spool.close)
        owner = lease_owner(spool.directory if spool else None)
        attempt = determine_attempt(job, place.project, owner, spool, connect, clock, _say) if job_id else 0
        plan = LaunchPlan(
            job=job,
            name=shown,
            kind=kind,
            command=words,
            user=target.user if target else _user(),
            replicas=replicas,
            attempt=attempt,
            named=name is not None,
            logs=logs,
            pass_key=pass_key,
            lease_owner=owner,
            node=place.node,
            programs=programs,
            tracking=pid is None and bool(server or _read_server_address()) and may_track(os.environ, job),
        )
        result = _measure(plan, target, place, connect, clock, spool, interval_ms, quiet=quiet)
    _report(result, spool)
    if not quiet:
        _summary(plan, result)
    sys.exit(result.status)


def _connector(server: str | None, key: str | None, data: Path | None, ca_file: str | None) -> Callable[[], Transport]:
    def connect() -> Transport:
        # Imported in the background thread, so that the command does not wait for it.
        found: Transport = import_module("jobmeter.cli.local").connect(server, key, data, ca_file=ca_file)
        return found

    return connect


def _read_server_address() -> str:
    return os.environ.get("JOBMETER_SERVER") or ""


def _check_usage(pid: int | None, replicas: int, words: tuple[str, ...], *, pass_key: bool) -> None:
    if pid is None and not words:
        raise click.UsageError("Missing argument '[--] COMMAND...'.")
    if pid is not None and (words or replicas > 1 or pass_key):
        raise click.UsageError(
            "--pid measures a running process: it cannot be used with COMMAND, --replicas or --pass-key"
        )


def _target_of(pid: int, clock: SampleClock) -> "AttachTarget":
    from jobmeter.collect.launch.attach import find_target

    try:
        return find_target(pid, clock)
    except JobmeterError as error:
        raise click.UsageError(error.message) from error


def _measure(
    plan: LaunchPlan,
    target: "AttachTarget | None",
    place: NodeIdentity,
    connect: Callable[[], Transport],
    clock: SampleClock,
    spool: Spool | None,
    interval_ms: int,
    *,
    quiet: bool,
) -> Result:
    """Measure the command or the running process until its end, and print the job's link.

    Exits with a shell's status if the command cannot be started.
    """
    connect = _announce_link(connect, plan, place, quiet=quiet)
    if target is not None:
        from jobmeter.collect.launch.attach import Attachment

        return Attachment(plan, target, place, connect, clock, spool=spool).run(interval_ms)
    say = _say_nothing if quiet else _say
    try:
        return JobRun(plan, place, connect, clock, spool=spool, say=say, warn=_say).run(os.environ, interval_ms)
    except OSError as error:
        program = plan.command[0]
        _say(
            f"{program}: "
            f"{describe_missing_interpreter(program) or suggest_interpreter(plan.command) or error.strerror or error}"
        )
        sys.exit(_NOT_FOUND if isinstance(error, FileNotFoundError) else _NOT_EXECUTABLE)


def describe_missing_interpreter(program: str) -> str:
    """Return ``its interpreter PATH does not exist``; empty if the interpreter exists."""
    found = shutil.which(program, os.F_OK)
    if found is None:
        return ""
    try:
        with Path(found).open("rb") as file:
            first = file.read(_FIRST_LINE).split(b"\n", 1)[0]
    except OSError:
        return ""
    words = os.fsdecode(first.removeprefix(b"#!")).strip(" \t").split(None, 1)
    if not first.startswith(b"#!") or not words or Path(words[0]).exists():
        return ""
    ending = " (its first line ends with a carriage return)" if first.endswith(b"\r") else ""
    return f"its interpreter {words[0].strip()} does not exist{ending}"


def suggest_interpreter(command: Sequence[str]) -> str:
    """Return the command that runs a script with its interpreter; empty if the program is no script."""
    interpreter = _INTERPRETERS.get(Path(command[0]).suffix)
    if interpreter is None or not Path(command[0]).is_file():
        return ""
    return f"a script is not a command: use `jobmeter run -- {interpreter} {shlex.join(command)}`"


def _announce_link(
    connect: Callable[[], Transport], plan: LaunchPlan, place: NodeIdentity, *, quiet: bool
) -> Callable[[], Transport]:
    """Wrap ``connect`` to print the job's link too: on a terminal only, because logs must not contain secrets."""

    def connected() -> Transport:
        found = connect()
        with suppress(JobmeterError):
            if not quiet and sys.stderr.isatty():
                from jobmeter.client.api import Api

                _say(f"watch it at {Api(found).create_page_link(plan.job, place.project)}")
        return found

    return connected


def _report(result: Result, spool: Spool | None) -> None:
    """Print problems of the run."""
    if result.undelivered:
        unsent = f"they are in {spool.directory} until the next run" if spool else "they are lost"
        _say(f"the last samples were not delivered ({result.undelivered}): {unsent}")
    if result.set_aside:
        _say(f"the server refused some data: {result.set_aside}")
    if result.lost:
        _say(f"{sum(result.lost.values()):,} samples were lost")
        for reason, count in sorted(result.lost.items()):
            _say(f"  {count:,} {reason}: {_LOST.get(reason, 'see the log of the server')}")
    if result.remaining:
        count, numbers = len(result.remaining), ", ".join(map(str, sorted(result.remaining)[:8]))
        _say(f"{count} {'process' if count == 1 else 'processes'} of the command still running, unmeasured: {numbers}")


def read_node_name() -> str:
    """Return this machine's name with characters that a node's name may have."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", socket.gethostname()).strip("-._")[:128] or "localhost"


def _user() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def _spool(folder: Path, job: str, target: str) -> Spool | None:
    """Open the spool of this run; frames that earlier runs could not deliver to this server are sent first."""
    root = folder / "spool"
    try:
        spool = Spool(root / f"run-{job}")
        (spool.directory / "target").write_bytes(os.fsencode(target))
        for other in sorted(root.glob("run-*")):
            if other != spool.directory and _target(other) == target:
                spool.adopt(other)
    except ConflictError as error:
        raise click.UsageError(f"another run has the job id {job}: choose another --job-id, or leave it out") from error
    except OSError as error:
        _say(f"samples cannot be stored on disk ({error}): samples not delivered at the command's end will be lost")
        return None
    return spool


def _target(directory: Path) -> str | None:
    try:
        return os.fsdecode((directory / "target").read_bytes())
    except OSError:
        return None


def _summary(plan: LaunchPlan, result: Result) -> None:
    from jobmeter.cli.run_summary import show

    try:
        show(plan, result)
    except (OSError, ValueError):
        _be_silent()


def _say(line: str) -> None:
    try:
        click.echo(f"jobmeter: {escape_invalid(line)}", err=True)
    except (OSError, ValueError):
        _be_silent()


def _open_streams() -> None:
    """Open /dev/null for closed standard streams, because the next opened file would take their descriptor."""
    logging.getLogger("jobmeter").addHandler(logging.NullHandler())  # errors are printed in one line
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    if sys.stderr is None:
        _be_silent()


def _be_silent() -> None:
    """Ignore later writes to the closed standard error, so that they cannot change the exit status."""
    sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115 - open until the end


def _say_nothing(line: str) -> None:
    """Do nothing, in place of ``_say``, with --quiet."""
