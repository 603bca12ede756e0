"""First screen: jobs by usage."""

from rich.cells import cell_len
from textual.app import ComposeResult
from textual.binding import Binding
from textual.widgets import DataTable, Footer, Static

from jobmeter.cli.findings import choose_summary_style, format_summary
from jobmeter.cli.jobs import FIRST_STEP
from jobmeter.cli.output import format_count
from jobmeter.cli.resource_columns import COLUMNS, find_start, format_age, join_values
from jobmeter.cli.screens.base import LiveScreen, format_moment
from jobmeter.cli.screens.draw import Cell, draw_spark, draw_state, format_number, format_words, get_newest
from jobmeter.cli.screens.job import JobScreen
from jobmeter.cli.screens.table import LiveTable, TableRow, build_columns
from jobmeter.cli.screens.watch import UsedJob, WatchOverview, WatchScreen

_SPARK = 16
_FOUND = 3
"""Jobs whose worst finding is written out below the table, at most."""
_NAMES = [name for name, _ in COLUMNS]
_SPARE = (
    *("user", "disk read", "net in", "disk write", "net out", "power", "npu memory", "gpu memory", "name", "state"),
    *("30 min", "memory", "npu", "gpu", "cpu", "finding", "running"),
)


class _JobTable(LiveTable):
    BINDINGS = [Binding("enter", "select_cursor", "Open")]  # noqa: RUF012 - as Textual declares it


class JobsScreen(LiveScreen):
    """Running jobs, busiest first; Enter opens one."""

    BINDINGS = [  # noqa: RUF012 - as Textual declares it
        Binding("a", "all", "All or running"),
        Binding("q", "app.quit", "Quit"),
    ]
    COLUMNS = build_columns(
        ("id", "name", "state", "user", "running", "30 min", *_NAMES, "finding"), ("running", *_NAMES), _SPARE
    )

    def __init__(self, watch: WatchScreen, pause: float) -> None:
        super().__init__()
        self._watch, self._pause = watch, pause
        self._only_running = True
        self._projects: dict[str, str] = {}

    def compose(self) -> ComposeResult:
        """Show the title, the table, a message, the keys."""
        yield Static("Loading…", id="title", markup=False)
        yield _JobTable("jobs")
        yield Static("", id="note", markup=False)
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        """Begin to poll."""
        self.follow(self._pause, lambda: self._watch.read_overview(running=self._only_running), self._show)

    def action_all(self) -> None:
        """Toggle between the newest jobs of every state and the running jobs."""
        self._only_running = not self._only_running
        self.on_screen_resume()

    async def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Open the job of that row."""
        project, _, job = str(event.row_key.value).partition("/")
        await self.app.push_screen(JobScreen(self._watch, self._pause, job, project or None))

    def _show(self, found: WatchOverview) -> None:
        what = "running job" if self._only_running else "job"
        shown = "" if found.total <= len(found.jobs) else f", the newest {len(found.jobs)}"
        critical, idle = sum(one.is_critical for one in found.jobs), sum(map(_count_idle_devices, found.jobs))
        wrong = f", {critical} with critical findings" if critical else ""
        wrong += f", {format_count(idle, 'idle device')}" if idle else ""
        head = f"{format_moment(found.now_ms)}  {format_count(found.total, what)}{shown}{wrong}"
        self.say(head if cell_len(head) <= self.size.width - 2 else head[len("2026-11-27 ") :])
        table = self.query_one(LiveTable)
        rows = [_row(one, found.now_ms) for one in found.jobs]
        table.display = bool(rows)
        table.show_rows(self.COLUMNS, rows)
        lines = [
            f"{one.job.id}: {format_summary(one.found, one.job.state)}"
            for one in found.jobs
            if one.found and one.found.open
        ]
        more = f"; {len(lines) - _FOUND} more jobs with findings" if len(lines) > _FOUND else ""
        note = "\n".join(lines[:_FOUND]) + more
        if rows and table.missing:
            note = "\n".join(filter(None, (note, f"hidden columns: {', '.join(table.missing)}")))
        if not rows:
            note = "no running jobs; press a for ended jobs" if self._only_running else FIRST_STEP
        self.query_one("#note", Static).update(note)


def _count_idle_devices(one: UsedJob) -> int:
    return one.found.idle_devices if one.found else 0


def _row(one: UsedJob, now_ms: int) -> TableRow:
    job = one.job
    start = find_start(job)
    cells = [
        format_words(job.id),
        format_words(job.name),
        draw_state(str(job.state)),
        format_words(job.user),
        format_words(format_age(job, now_ms), 0 if start is None else now_ms - start),
        Cell(draw_spark(one.curve, _SPARK, 0.0), get_newest(one.curve)),
        *(format_number(join_values(one.values, metric)) for _, metric in COLUMNS),
        format_words(f"{one.found.severity} {one.found.rules[0]}", style=choose_summary_style(one.found, job.state))
        if one.found and one.found.rules
        else format_words(""),
    ]
    return TableRow(f"{job.project}/{job.id}", cells)
