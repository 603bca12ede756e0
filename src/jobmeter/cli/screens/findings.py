"""Every finding of a job with its evidence and advice, to scroll through."""

from collections.abc import Sequence

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.screen import Screen
from textual.widgets import Footer, Static

from jobmeter.cli.diagnose import headline
from jobmeter.cli.output import cell, moment
from jobmeter.model.finding import Finding


class FindingsScreen(Screen[None]):
    """What the rules found when the screen was opened."""

    BINDINGS = [  # noqa: RUF012 - as Textual declares it
        Binding("escape,f", "app.pop_screen", "Back"),
        Binding("q", "app.quit", "Quit"),
    ]

    def __init__(self, job: str, findings: Sequence[Finding]) -> None:
        super().__init__()
        self._job, self._findings = job, findings

    def compose(self) -> ComposeResult:
        """The job, its findings, the keys."""
        yield Static(f"{self._job}  findings", id="title", markup=False)
        with VerticalScroll(id="text"):
            yield Static(Text("\n\n").join([_text(one) for one in self._findings] or [Text("no rule found anything")]))
        yield Footer(show_command_palette=False)


def _text(one: Finding) -> Text:
    span = moment(one.start) if one.start == one.end else f"{moment(one.start)} to {moment(one.end)}"
    rows = [("when", f"{span} UTC, confidence {one.confidence:.0%}")]
    rows += [(evidence.kind, evidence.text) for evidence in one.evidence[1:]]
    rows.append(("advice", one.advice))
    return Text.from_markup(
        "\n".join([headline(one), *(f"  [dim]{cell(name):<9}[/]{cell(text)}" for name, text in rows)])
    )
