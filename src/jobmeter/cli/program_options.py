"""Options of the verbs that receive the numbers of programs."""

import functools
from collections.abc import Callable
from typing import Any

import click

from jobmeter.collect.reports.loss_lines import parse_own_form
from jobmeter.collect.reports.settings import ProgramSettings
from jobmeter.wire.program import places

_LONGEST_PATH = 107
"""Most bytes of a socket's path: see unix(7)."""


def add_program_options(default: str, *, output: bool = False) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add ``--socket --statsd --otlp`` to a verb, which gets them as one ``programs``. ``default`` is a text.

    ``output``: the verb reads the output of programs, so that it has ``--parse`` too.
    """

    def add(function: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(function)
        def call(**values: Any) -> None:  # noqa: ANN401 - what click parsed, each verb names its own
            own = {name: values.pop(name) for name in ("socket", "statsd", "otlp", "form") if name in values}
            function(programs=ProgramSettings(**own), **values)

        port = click.IntRange(0, 65_535)
        options = (
            click.option(
                "--otlp",
                type=port,
                metavar="PORT",
                help="Receive OpenTelemetry's metrics over HTTP on this port of 127.0.0.1 (default: closed; 0: any).",
            ),
            click.option(
                "--statsd",
                type=port,
                metavar="PORT",
                help="Receive StatsD over UDP on this port of 127.0.0.1 (default: closed; 0: any).",
            ),
            click.option(
                "--socket",
                metavar="PATH",
                callback=_check_path,
                help=f"Socket that receives what programs report (default: {default}); an empty text closes it.",
            ),
        )
        parse = click.option(
            "--parse",
            "form",
            metavar="REGEX",
            callback=_check_form,
            help="Read numbers from lines of the output: (?P<loss>...) is the value loss, (?P<step>...) the step.",
        )
        more = (parse, *options) if output else options
        return functools.reduce(lambda wrapped, option: option(wrapped), more, call)

    return add


def _check_path(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:  # noqa: ARG001
    if value and len(places.make_address(value).encode()) > _LONGEST_PATH:
        raise click.BadParameter(f"the path may have {_LONGEST_PATH} bytes")
    return value


def _check_form(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:  # noqa: ARG001
    if value:
        try:
            parse_own_form(value)
        except ValueError as error:
            raise click.BadParameter(str(error)) from error
    return value
