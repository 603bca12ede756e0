"""Screen with all findings of a job, their evidence and advice."""

from collections.abc import Sequence

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.screen import Screen
from textual.widgets import Footer, Static

from jobmeter.cli.findings import details, headline
from jobmeter.cli.output import cell
from jobmeter.model.finding import Finding


class FindingsScreen(Screen[None]):
    """Findings at the time when the screen was opened."""

    BINDINGS = [  # noqa: RUF012 - as Textual declares it
        Binding("escape,f", "app.pop_screen", "Back"),
        Binding("q", "app.quit", "Quit"),
    ]

    def __init__(self, job: str, findings: Sequence[Finding]) -> None:
        super().__init__()
        self._job, self._findings = job, findings

    def compose(self) -> ComposeResult:
        """Show the job, its findings, and the keys."""
        yield Static(f"{self._job}  findings", id="title", markup=False)
        with VerticalScroll(id="text"):
            yield Static(Text("\n\n").join([_text(one) for one in self._findings] or [Text("no rule found anything")]))
        yield Footer(show_command_palette=False)


def _text(one: Finding) -> Text:
    rows = (f"  [dim]{cell(name):<9}[/]{cell(text)}" for name, text in details(one))
    return Text.from_markup("\n".join([headline(one), *rows]))
