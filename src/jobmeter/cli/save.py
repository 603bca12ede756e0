"""Write an answer of any length as it arrives, to a file or to standard output."""

import sys
from codecs import getincrementaldecoder
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rich.progress import DownloadColumn, Progress, TextColumn, TimeElapsedColumn, TransferSpeedColumn

from jobmeter.cli.output import build_console, handle_closed_pipe
from jobmeter.errors import ConfigurationError


def save(pieces: Iterator[bytes], output: Path | None) -> None:
    """Write the pieces as they arrive; to ``OUTPUT.part`` until the answer is complete.

    A failure leaves no file, and an existing one unchanged.
    """
    if output is None:
        with handle_closed_pipe():
            if sys.stdout.isatty():
                _show(pieces)
            else:
                for piece in pieces:
                    sys.stdout.buffer.write(piece)
                sys.stdout.buffer.flush()
        return
    part = output.with_name(f"{output.name}.part")
    try:
        with convert_write_errors(output):
            with part.open("wb") as file, _progress() as show:
                for piece in pieces:
                    file.write(piece)
                    show(len(piece))
            part.replace(output)
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)


def _show(pieces: Iterator[bytes]) -> None:
    """Write UTF-8 as text, which the terminal's guard filters; a character may span two pieces."""
    decoder = getincrementaldecoder("utf-8")(errors="replace")
    for piece in pieces:
        sys.stdout.write(decoder.decode(piece))
    sys.stdout.flush()


@contextmanager
def convert_write_errors(output: Path) -> Iterator[None]:
    """Convert OSError to ConfigurationError with one sentence."""
    try:
        yield
    except OSError as error:
        raise ConfigurationError(f"{output} cannot be written: {error.strerror or error}") from error


@contextmanager
def _progress() -> Iterator[Callable[[int], None]]:
    """Show progress in bytes: a changing line on a terminal, nothing elsewhere."""
    if not sys.stderr.isatty():
        yield lambda size: None  # noqa: ARG005
        return
    columns = (TextColumn("exporting"), DownloadColumn(), TransferSpeedColumn(), TimeElapsedColumn())
    with Progress(*columns, console=build_console(sys.stderr), transient=True) as shown:
        task = shown.add_task("export", total=None)
        yield lambda size: shown.advance(task, size)
