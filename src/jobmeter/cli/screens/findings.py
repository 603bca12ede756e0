"""Screen with all findings of a job, their evidence and advice."""

from collections.abc import Sequence

from rich.table import Table
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.screen import Screen
from textual.widgets import Footer, Static

from jobmeter.cli.findings import format_origin, format_severity, get_sentence, list_details
from jobmeter.cli.output import escape_cell
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
            yield Static(_texts(self._findings) if self._findings else "no rule found anything")
        yield Footer(show_command_palette=False)


def _texts(findings: Sequence[Finding]) -> Table:
    """Build rows of a label and a text; a long text stays in its column."""
    grid = Table.grid(padding=(0, 1))
    for one in findings:
        grid.add_row(format_severity(one), f"{escape_cell(get_sentence(one))} {format_origin(one)}")
        for name, text in list_details(one):
            grid.add_row(f"[dim]{escape_cell(name)}[/]", escape_cell(text))
        grid.add_row()
    return grid
