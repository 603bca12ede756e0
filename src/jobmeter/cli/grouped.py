"""Verbs whose help groups their options under headings, and ends with examples."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

Record = tuple[str, str]
"""Option with its help text."""
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

    def sections(self, context: click.Context) -> dict[str, list[Record]]:
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
        for heading, records in self.sections(ctx).items():
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
