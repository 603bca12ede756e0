"""Definition of verbs: the options that several share, their checks, groups and examples."""

import os
import signal
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from threading import Event, Thread
from types import FrameType, MappingProxyType
from typing import Any, TypeVar

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from jobmeter.errors import InvalidRequestError
from jobmeter.model.cluster import JobIds
from jobmeter.model.time import parse_duration
from jobmeter.settings import find_data_directory

FILE = click.Path(path_type=Path, dir_okay=False)
FOLDER = click.Path(path_type=Path, file_okay=False)

data_option = click.option("--data", type=FOLDER, metavar="DIR", help="The data folder (JOBMETER_DATA).")
ca_file_option = click.option(
    "--ca-file",
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE",
    help="Certificates, in PEM, to verify the server.",
)

_Function = TypeVar("_Function", bound=Callable[..., Any])
_Checked = TypeVar("_Checked")
_ARGUMENTS_BEGIN = 48
"""Field of ``/proc/PID/stat``, counted from 1, with the address of the command line: see proc_pid_stat(5)."""


def build_key_option(help_text: str, **more: Any) -> Callable[[_Function], _Function]:  # noqa: ANN401 - as click has it
    """Build the option ``--key``. Its value is overwritten in the command line that other users see."""
    return click.option("--key", metavar="TOKEN", help=help_text, callback=_hide_secret, **more)


def _hide_secret(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    if value and context.get_parameter_source(parameter.name or "") is ParameterSource.COMMANDLINE:
        overwrite_argument(value)
    return value


def overwrite_argument(value: str, process: Path = Path("/proc/self")) -> None:
    """Overwrite ``value`` with ``x`` in this process' own command line, if the system permits it.

    In the first milliseconds of the process, before this call, anybody on the machine can read the value.
    """
    try:
        line = (process / "cmdline").read_bytes()
        fields = (process / "stat").read_bytes().rpartition(b")")[2].split()
        begin = int(fields[_ARGUMENTS_BEGIN - 3])  # the first two fields precede the bracket
        memory = os.open(process / "mem", os.O_RDWR)
    except (OSError, IndexError, ValueError):
        return
    try:
        if line and os.pread(memory, len(line), begin) == line:
            secret = os.fsencode(value)
            os.pwrite(memory, line.replace(secret, b"x" * len(secret)), begin)
    except (OSError, OverflowError):
        return
    finally:
        os.close(memory)


def build_names_option(
    *flags: str, complete: Callable[[click.Context, click.Parameter, str], list[CompletionItem]], help_text: str
) -> Callable[[_Function], _Function]:
    """Return a filter by names that may be repeated; ``complete`` completes a name in a shell."""
    return click.option(*flags, multiple=True, metavar="NAME", shell_complete=complete, help=help_text)


def build_choice(kind: type[StrEnum]) -> click.Choice[str]:
    """Build a case-insensitive choice of words."""
    return click.Choice([str(one) for one in kind], case_sensitive=False)


def build_env_option(flag: str, help_text: str, **more: Any) -> Callable[[_Function], _Function]:  # noqa: ANN401 - as click has it
    """Return an option that the environment may set: ``--log-rate`` by JOBMETER_LOG_RATE, which replaces ``{}``."""
    variable = f"JOBMETER_{flag.removeprefix('--').replace('-', '_').upper()}"
    return click.option(flag, envvar=variable, help=help_text.format(variable), **more)


def build_job_ids_option(help_text: str) -> Callable[[_Function], _Function]:
    """Build the option ``--job-ids``: the form of job ids, ``JobIds`` as text."""
    forms = click.Choice([one.value for one in JobIds])
    return build_env_option("--job-ids", help_text, type=forms, default=JobIds.PLAIN.value, show_default=True)


def find_data_folder(given: Path | None = None) -> Path:
    """Return the given folder, else JOBMETER_DATA, else the user's default."""
    return given or Path(os.environ.get("JOBMETER_DATA") or find_data_directory(os.environ))


def parse_interval(text: str, shortest_ms: int) -> int:
    """Parse an ``--interval`` to milliseconds.

    Raises a usage error if it is malformed or shorter than ``shortest_ms``.
    """
    try:
        interval_ms = parse_duration(text, "--interval", bare_unit="s")
    except InvalidRequestError as error:
        raise click.UsageError(error.message) from error
    if interval_ms < shortest_ms:
        raise click.UsageError(f"--interval must be at least {shortest_ms} ms, got {interval_ms} ms")
    return interval_ms


def build_interval_option(
    default: str, help_text: str = "Time between two samples."
) -> Callable[[_Function], _Function]:
    """Build the option ``--interval``, see ``parse_interval``."""
    return click.option("--interval", metavar="DURATION", default=default, show_default=True, help=help_text)


def build_number_option(
    flag: str, low: int, high: int, default: int | None, text: str
) -> Callable[[_Function], _Function]:
    """Build an option for a whole number from ``low`` to ``high``; without a ``default``, ``text`` names it."""
    numbers = click.IntRange(low, high)
    return click.option(flag, type=numbers, metavar="N", default=default, show_default=default is not None, help=text)


def choose_format(chosen: str | None, *, as_json: bool) -> str | None:
    """Return the format chosen by ``--json`` or ``--format``, None without either.

    Raises a usage error if the two contradict each other.
    """
    if as_json and chosen not in {None, "json"}:
        raise click.UsageError(f"give --json or --format {chosen}, not both")
    return "json" if as_json else chosen


def make_since_option(help_text: str, **more: Any) -> Callable[[_Function], _Function]:  # noqa: ANN401 - as click has it
    """Build the option ``--since``: a duration such as 30m, checked before any request."""

    def check(_context: click.Context, _parameter: click.Parameter, text: str | None) -> str | None:
        if text:
            check_option(parse_duration, text, "--since")
        return text

    return click.option("--since", metavar="DURATION", callback=check, help=help_text, **more)


def format_of(form: str | None, output: Path | None, endings: Mapping[str, str]) -> str | None:
    """Return ``form``, else the format for the ending of the file; None without either.

    ``endings`` are formats by ending. Raises a usage error for an unknown ending, and for a format in place of a file.
    """
    if form or output is None:
        return form
    ending = output.suffix.lower()
    if str(output) in endings.values():
        raise click.UsageError(f"--output names a file: use --format {output}")
    if ending and ending not in endings:
        raise click.UsageError(
            f"--output {output}: the ending {ending} names no format; use {', '.join(endings)}, or add --format"
        )
    return endings.get(ending)


def check_server(server: str) -> None:
    """Raise a usage error unless ``server`` is an address."""
    if not server.startswith(("http://", "https://")):
        raise click.UsageError(f"--server {server!r} is not an address such as https://host:8400")


def check_option(check: Callable[[str, str], _Checked], value: str, option: str) -> _Checked:
    """Return ``check(value, option)``. Raises a usage error for a value that it refuses."""
    try:
        return check(value, option)
    except InvalidRequestError as error:
        raise click.UsageError(error.message) from error


def make_stop_event(on: Mapping[int, Callable[[], None]] = MappingProxyType({})) -> Event:
    """Return an event that SIGTERM and SIGINT set. ``on`` has short calls for other signals, made on another thread.

    Only the main thread may call this. The event is set whichever thread gets the signal. Python's own handlers run in
    the main thread, which a signal to another thread does not wake from a long wait.
    """
    stop, stopping = Event(), {signal.SIGTERM, signal.SIGINT}
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    for number in (*stopping, *on):
        signal.signal(number, _ignore_signal)

    def read() -> None:
        while (number := os.read(reading, 1)[0]) not in stopping:
            if number in on:
                on[number]()
        stop.set()

    Thread(target=read, name="signals", daemon=True).start()
    return stop


def _ignore_signal(_number: int, _frame: FrameType | None) -> None:
    """Do nothing: without a handler no signal reaches the pipe."""


Record = tuple[str, str]
"""An option with its help text."""
_Decorator = Callable[[Callable[..., Any]], click.Command]
OTHERS = "Other options"
"""Heading of options that belong to no group."""
_SHARED: Mapping[str, Sequence[str]] = {
    "Output": ("form", "raw", "as_json", "output", "limit"),
    "Connection": ("server", "key", "data", "ca_file"),
}
"""Groups of every verb, unless the verb groups these options itself."""


class GroupedCommand(click.Command):
    """Command with ``groups``: parameter names by heading, in the order of the help; other options come last."""

    def __init__(
        self,
        *arguments: Any,  # noqa: ANN401 - as click.Command has them
        groups: Mapping[str, Sequence[str]] = _SHARED,
        **options: Any,  # noqa: ANN401 - as click.Command has them
    ) -> None:
        super().__init__(*arguments, **options)
        self._groups = {**groups, **{heading: names for heading, names in _SHARED.items() if heading not in groups}}

    def group_options(self, context: click.Context) -> dict[str, list[Record]]:
        """Return the options by heading."""
        heading_of = {name: heading for heading, names in reversed(self._groups.items()) for name in names}
        found: dict[str, list[Record]] = {heading: [] for heading in self._groups}
        for parameter in self.get_params(context):
            record = parameter.get_help_record(context)
            if record is not None and record[1]:
                found.setdefault(heading_of.get(parameter.name or "", OTHERS), []).append(record)
        return {heading: records for heading, records in found.items() if records}

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, one section per group."""
        for heading, records in self.group_options(ctx).items():
            with formatter.section(heading):
                formatter.write_dl(records)


class VerbGroup(click.Group):
    """Verb with verbs of its own, whose options are grouped too."""

    def define(self, *examples: str, **options: Any) -> _Decorator:  # noqa: ANN401 - as click has them
        """Make a verb of the group from a function, see ``define_verb``."""
        return self.command(cls=GroupedCommand, epilog=_format_examples(examples), **options)


def define_verb(*examples: str, cls: type[GroupedCommand] = GroupedCommand, **options: Any) -> _Decorator:  # noqa: ANN401 - as click has them
    """Make a verb from a function. Its help ends with ``examples``, command lines."""
    return click.command(cls=cls, epilog=_format_examples(examples), **options)


def define_group(*examples: str, cls: type[VerbGroup] = VerbGroup) -> Callable[[Callable[..., Any]], VerbGroup]:
    """Make a verb with verbs of its own from a function. Its help ends with ``examples``."""
    return click.group(cls=cls, epilog=_format_examples(examples))


def _format_examples(lines: Sequence[str]) -> str:
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)
