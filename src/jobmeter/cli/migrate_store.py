"""``jobmeter migrate-store``: move the telemetry of a server to another engine."""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import msgspec

from jobmeter.cli import local
from jobmeter.cli.backup import HOURS_SECONDS
from jobmeter.cli.options import build_key_option, ca_file_option, define_verb, overwrite_argument
from jobmeter.cli.output import build_console, build_table, format_count, print_json
from jobmeter.client.transport import API, Transport
from jobmeter.errors import ConfigurationError, UnavailableError
from jobmeter.model.move import MoveLine, MoveOrder, MoveReport, MoveStep
from jobmeter.model.time import SECOND, SystemClock
from jobmeter.settings import load

_TELEMETRY = "telemetry"
_DRY_RUN, _VERIFY, _CANCEL = "dry-run", "verify", "cancel"
_Show = Callable[[MoveStep], None]


@define_verb(
    "jobmeter migrate-store /srv/jobmeter clickhousedb://jobmeter:PASSWORD@clickhouse:8123/jobmeter",
    "jobmeter migrate-store https://meter.example clickhousedb://... --dry-run",
    name="migrate-store",
)
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO", required=False)
@click.option(
    "--dry-run", "mode", flag_value=_DRY_RUN, help="Compare FROM and TO, count what would be copied, and write nothing."
)
@click.option("--verify", "mode", flag_value=_VERIFY, help="Compare FROM and TO. The exit status is 1 if they differ.")
@click.option("--registry", metavar="URL", help="Also move the registry of the data folder FROM, while no server runs.")
@click.option(
    "--cancel", "mode", flag_value=_CANCEL, help="Let a server use FROM again, without what was written to TO."
)
@click.option("--json", "as_json", is_flag=True, help="The result as a JSON object.")
@build_key_option("The token of an administrator's key, if a server runs on FROM (JOBMETER_KEY).")
@ca_file_option
def command(
    source: str,
    target: str | None,
    mode: str | None,
    registry: str | None,
    as_json: bool,
    key: str | None,
    ca_file: str | None,
) -> None:
    """Move samples, roll-ups, log lines and spans from FROM to TO, while the server on FROM runs.

    FROM is a data folder, the address of a running server, or an engine that no server uses. TO is an engine in the
    form of `jobmeter serve --store`, with a database that does not exist yet. If the command ends early, repeat it: it
    copies the rest. In the last seconds of the move the server begins to refuse writes, until it is started again with
    --store TO. Meanwhile it answers queries, and agents store their samples. The registry stays in the data folder,
    unless --registry names an empty database.
    """
    for address in (source, target, registry):
        if address and "@" in address:
            overwrite_argument(address)
    if (target is None) != (mode == _CANCEL) or (registry and mode):
        raise click.UsageError(
            "give FROM and TO, but FROM alone with --cancel; --registry goes with none of the others"
        )
    if registry and ("://" in source or _server(source, key, ca_file)):
        raise ConfigurationError(
            "the registry moves out of a data folder that no server uses: move the samples first, then stop the server "
            "and repeat the command with --registry"
        )
    if target is None:
        _cancel(source)
        return
    order = MoveOrder(to=target, compare=mode is not None)
    with _progress() as show:
        report = _show_steps(_lines(source, order, key, ca_file), show)
    if registry:
        _move_registry(Path(source), registry)
    if as_json:
        print_json(report)
    else:
        _print(report, mode)
    if mode == _VERIFY and any(one.slices for one in report.tables):
        sys.exit(1)


def _lines(source: str, order: MoveOrder, key: str | None, ca_file: str | None) -> Iterator[MoveLine]:
    server = _server(source, key, ca_file)
    if server is None:
        yield from _engine_lines(_engine(source), order)
        return
    transport = server.with_timeout(HOURS_SECONDS)
    try:
        for line in transport.stream_lines(f"{API}/store/move", "POST", msgspec.json.encode(order)):
            yield msgspec.json.decode(line, type=MoveLine)
    finally:
        transport.close()


def _server(source: str, key: str | None, ca_file: str | None) -> Transport | None:
    """Return the running server on FROM, None without a server."""
    if source.startswith(("http://", "https://")):
        return local.connect(source, key, None, ca_file=ca_file)
    url = None if "://" in source else local.find_listening(Path(source), ca_file)
    return None if url is None else local.connect(url, key, Path(source), ca_file=ca_file)


def _engine(source: str) -> str:
    """Return the DSN of an engine that no server uses. Raises ConfigurationError for a folder without one."""
    if "://" in source:
        return source
    folder = Path(source).absolute() / _TELEMETRY
    if not folder.is_dir():
        raise ConfigurationError(
            f"there is no data folder {source} with samples: name it, or the engine itself, as FROM"
        )
    return f"chdb://{folder}"


def _engine_lines(dsn: str, order: MoveOrder) -> Iterator[MoveLine]:
    try:
        from jobmeter.store.registry import move_store
    except ModuleNotFoundError as error:
        raise ConfigurationError(f"{error.name} is missing: install jobmeter[server] to move data") from error
    yield from move_store(dsn, order, SystemClock())


def _move_registry(data: Path, url: str) -> None:
    from jobmeter.server.backup import move_registry

    move_registry(data.absolute(), url, load(None, data=data).retention)
    click.echo("moved the registry: start the server with --registry and its new address", err=True)


def _cancel(source: str) -> None:
    from jobmeter.store.registry import cancel_move

    gone_to = cancel_move(_engine(source), SystemClock())
    done = f"servers may use {source} again; {gone_to} has the data too" if gone_to else f"{source} was not moved"
    click.echo(done)


def _show_steps(lines: Iterable[MoveLine], show: _Show) -> MoveReport:
    """Show the steps, and return the report. Raises UnavailableError if the move ended early."""
    for line in lines:
        if line.step is not None:
            show(line.step)
        if line.report is not None:
            return line.report
        if line.error:
            raise UnavailableError(f"{line.error} (repeat the command to continue)")
    raise UnavailableError("the server ended the move without a report: repeat the command to continue")


@contextmanager
def _progress() -> Iterator[_Show]:
    """Show progress: a bar on a terminal, elsewhere a line for each table."""
    if not sys.stderr.isatty():
        shown: set[tuple[str, bool]] = set()

        def echo(step: MoveStep) -> None:
            if (step.table, step.refusing) not in shown:
                shown.add((step.table, step.refusing))
                click.echo(f"jobmeter: {_describe_step(step)}", err=True)

        yield echo
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=build_console(sys.stderr), transient=True) as bar:
        task = bar.add_task("begin", total=None)
        yield lambda step: bar.update(
            task, description=f"{_describe_step(step)}, {step.rows:,} rows", completed=step.done, total=step.total
        )


def _describe_step(step: MoveStep) -> str:
    return f"{step.table}{' (the server refuses writes)' if step.refusing else ''}"


def _print(report: MoveReport, mode: str | None) -> None:
    out = build_console()
    rows = [
        (one.table, f"{one.rows:,}", one.checksum, f"{one.differing_rows:,}" if one.slices else "")
        for one in report.tables
    ]
    if rows:
        out.print(build_table(("table", "rows", "checksum", "to copy"), rows, right=("rows", "to copy")))
    if mode is not None:
        slices = sum(one.slices for one in report.tables)
        missing = sum(one.differing_rows for one in report.tables)
        if not slices:
            out.print("both stores have the same rows", markup=False)
        elif mode == _VERIFY:
            out.print(f"the stores differ in {format_count(slices, 'slice')}", markup=False)
        else:
            out.print(f"would copy {format_count(missing, 'row')} in {format_count(slices, 'slice')}", markup=False)
        return
    if not report.tables:
        out.print("nothing to copy: everything was moved before", markup=False)
    else:
        out.print(
            f"copied {format_count(report.copied, 'row')}; every row was compared; writes were refused for "
            f"{report.refused_ms / SECOND:.1f} s",
            markup=False,
        )
    out.print("start the server again with --store and the address of the new store: it refuses writes until then")
