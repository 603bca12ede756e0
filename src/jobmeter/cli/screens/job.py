"""Screen of one job: its health, unusual ranks, and reasons."""

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Container
from textual.widgets import Footer, Static

from jobmeter.cli.findings import format_origin, format_severity, get_sentence
from jobmeter.cli.output import escape_cell
from jobmeter.cli.resource_columns import format_age
from jobmeter.cli.screens.base import LiveScreen, format_moment
from jobmeter.cli.screens.draw import draw_spark, get_newest
from jobmeter.cli.screens.findings import FindingsScreen
from jobmeter.cli.screens.members import DEVICE_COLUMNS, RANK_COLUMNS, build_device_rows, rank_rows
from jobmeter.cli.screens.table import LiveTable
from jobmeter.cli.screens.watch import CURVE_SECONDS, FINDING_SECONDS, Curves, WatchParts, WatchScreen
from jobmeter.model.finding import Finding
from jobmeter.model.quantity import format_quantity

_TALL = 34
"""Height in lines from which ranks and devices are both shown."""
_SHOWN_SMALL, _SHOWN_TALL = 2, 6


class JobScreen(LiveScreen):
    """Live screen of one job: findings, charts, ranks, devices."""

    BINDINGS = [  # noqa: RUF012 - as Textual declares it
        Binding("d", "devices", "Ranks or devices"),
        Binding("f", "findings", "Findings"),
        Binding("escape", "app.pop_screen", "Jobs"),
        Binding("q", "app.quit", "Quit"),
    ]

    def __init__(self, watch: WatchScreen, pause: float, job: str, project: str | None) -> None:
        super().__init__()
        self._watch, self._pause = watch, pause
        self._job, self._project = job, project
        self._parts: WatchParts | None = None
        self._curves = Curves()
        self._findings: Sequence[Finding] | None = None
        self._of_devices = False

    def compose(self) -> ComposeResult:
        """Show, from top to bottom: the job, its findings, its charts, its ranks and devices, the keys."""
        yield Static("Loading…", id="title", markup=False)
        yield Static("", id="found")
        yield Static("", id="curves")
        with Container(id="members"):
            yield LiveTable("ranks")
            yield LiveTable("devices")
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        """Begin to poll: usage often, the rest less often."""
        self.query_one("#ranks").focus()
        self.follow(self._pause, lambda: self._watch.query_parts(self._job, self._project), self._show)
        self.follow(CURVE_SECONDS, self._read_curves, self._show_curves)
        self.follow(FINDING_SECONDS, lambda: self._watch.query_findings(self._job, self._project), self._show_findings)

    def on_resize(self, _: events.Resize) -> None:
        """Show ranks and devices together on a tall terminal."""
        self._arrange()
        self._draw_findings()
        self._draw_curves()

    def action_devices(self) -> None:
        """Show the devices in place of the ranks, or move to the other table if both are shown."""
        self._of_devices = not self._of_devices
        self._arrange()
        self.query_one("#devices" if self._of_devices else "#ranks").focus()

    async def action_findings(self) -> None:
        """Show every finding with its evidence and advice."""
        await self.app.push_screen(FindingsScreen(self._job, self._findings or []))

    def _read_curves(self) -> Curves:
        return self._watch.query_curves(self._parts or self._watch.query_parts(self._job, self._project))

    def _show(self, found: WatchParts) -> None:
        self._parts = found
        self.say(_title(found, self.size.width - 2))
        self._draw_members()

    def _show_curves(self, found: Curves) -> None:
        self._curves = found
        self._draw_curves()
        self._draw_findings()
        self._draw_members()

    def _show_findings(self, found: Sequence[Finding]) -> None:
        self._findings = found
        self._draw_findings()
        self._draw_members()

    def _draw_members(self) -> None:
        if self._parts is None:
            return
        ranks = rank_rows(self._parts, self._curves, self._findings or ())
        self.query_one("#ranks", LiveTable).show_rows(RANK_COLUMNS, ranks)
        self.query_one("#devices", LiveTable).show_rows(
            DEVICE_COLUMNS, build_device_rows(self._parts, self._findings or ())
        )
        self._arrange()

    def _arrange(self) -> None:
        ranks, devices = self.query_one("#ranks", LiveTable), self.query_one("#devices", LiveTable)
        some = devices.row_count > 0
        tall = self.size.height >= _TALL
        devices.display = some and (tall or self._of_devices)
        ranks.display = tall or not devices.display

    def _draw_curves(self) -> None:
        width = max(self.size.width - 34, 16)
        lines = [
            Text.assemble(
                (f"{metric:<16}", "bold"),
                draw_spark(curve, width, 1.0 if unit == "1" else 0.0),
                "  ",
                format_quantity(get_newest(curve), unit),
            )
            for metric, (curve, unit) in self._curves.whole.items()
        ]
        self.query_one("#curves", Static).update(Text("\n").join(lines))

    def _draw_findings(self) -> None:
        if self._findings is None:
            return
        most = _SHOWN_TALL if self.size.height >= _TALL else _SHOWN_SMALL
        lines = Table.grid(padding=(0, 1))
        for one in self._findings[:most]:
            lines.add_row(format_severity(one), f"{escape_cell(get_sentence(one))} {format_origin(one)}")
        if len(self._findings) > most:
            lines.add_row("", f"[dim]{len(self._findings) - most} more: f[/]")
        self.query_one("#found", Static).update(lines if self._findings else Text("no rule found anything", "dim"))


def _title(parts: WatchParts, width: int) -> str:
    """Format the job's identity and state; without its name if there is no room."""
    job = parts.job
    tail = f"{job.state}  {format_age(job, parts.now_ms)}  {format_moment(parts.now_ms)[11:]}"
    whole = f"{job.id}  {job.name}  {tail}"
    return whole if job.name not in {"", job.id} and len(whole) <= width else f"{job.id}  {tail}"
