"""A verb whose options stand under headings in its help."""

from collections.abc import Mapping, Sequence
from typing import Any

import click

Record = tuple[str, str]
"""An option as it is written, and what it does."""
OTHERS = "Other options"
"""The heading of what no group names."""
WHICH_SERVER = ("server", "key", "data")
"""The options that every verb has which talks to a server."""


class GroupedCommand(click.Command):
    """``groups`` has the names of parameters by heading, in the order of the help; the others come last."""

    def __init__(self, *arguments: Any, groups: Mapping[str, Sequence[str]], **options: Any) -> None:  # noqa: ANN401
        super().__init__(*arguments, **options)
        self._groups = groups

    def sections(self, context: click.Context) -> dict[str, list[Record]]:
        """The options by heading."""
        heading_of = {name: heading for heading, names in self._groups.items() for name in names}
        found: dict[str, list[Record]] = {heading: [] for heading in self._groups}
        for parameter in self.get_params(context):
            record = parameter.get_help_record(context)
            if record is not None and record[1]:
                found.setdefault(heading_of.get(parameter.name or "", OTHERS), []).append(record)
        return found

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """As click has it, with a section a group."""
        for heading, records in self.sections(ctx).items():
            with formatter.section(heading):
                formatter.write_dl(records)
