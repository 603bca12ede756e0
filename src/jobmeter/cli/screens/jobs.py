"""First screen: jobs by usage."""

from textual.app import ComposeResult
from textual.binding import Binding
from textual.widgets import DataTable, Footer, Static

from jobmeter.cli.jobs import FIRST_STEP
from jobmeter.cli.output import counted
from jobmeter.cli.resource_columns import COLUMNS, age, began, joined
from jobmeter.cli.screens.base import LiveScreen, when
from jobmeter.cli.screens.draw import Cell, newest_of, number, spark, state, words
from jobmeter.cli.screens.job import JobScreen
from jobmeter.cli.screens.table import LiveTable, Row, columns
from jobmeter.cli.screens.watch import Overview, UsedJob, Watch

_SPARK = 16
_NAMES = [name for name, _ in COLUMNS]
_SPARE = (
    *("user", "disk read", "net in", "disk write", "net out", "power", "npu memory", "gpu memory", "name", "state"),
    *("30 min", "memory", "npu", "gpu", "cpu", "running"),
)


class _JobTable(LiveTable):
    BINDINGS = [Binding("enter", "select_cursor", "Open")]  # noqa: RUF012 - as Textual declares it


class JobsScreen(LiveScreen):
    """Running jobs, busiest first; Enter opens one."""

    BINDINGS = [  # noqa: RUF012 - as Textual declares it
        Binding("a", "all", "All or running"),
        Binding("q", "app.quit", "Quit"),
    ]
    COLUMNS = columns(("id", "name", "state", "user", "running", "30 min", *_NAMES), ("running", *_NAMES), _SPARE)

    def __init__(self, watch: Watch, pause: float) -> None:
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
        self.follow(self._pause, lambda: self._watch.overview(running=self._only_running), self._show)

    def action_all(self) -> None:
        """Toggle between the newest jobs of every state and the running jobs."""
        self._only_running = not self._only_running
        self.on_screen_resume()

    async def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Open the job of that row."""
        project, _, job = str(event.row_key.value).partition("/")
        await self.app.push_screen(JobScreen(self._watch, self._pause, job, project or None))

    def _show(self, found: Overview) -> None:
        what = "running job" if self._only_running else "job"
        shown = "" if found.total <= len(found.jobs) else f", the newest {len(found.jobs)}"
        self.say(f"{when(found.now_ms)}  {counted(found.total, what)}{shown}")
        table = self.query_one(LiveTable)
        rows = [_row(one, found.now_ms) for one in found.jobs]
        table.display = bool(rows)
        table.present(self.COLUMNS, rows)
        note = f"hidden columns: {', '.join(table.missing)}" if rows and table.missing else ""
        if not rows:
            note = "no running jobs; press a for ended jobs" if self._only_running else FIRST_STEP
        self.query_one("#note", Static).update(note)


def _row(one: UsedJob, now_ms: int) -> Row:
    job = one.job
    start = began(job)
    cells = [
        words(job.id),
        words(job.name),
        state(str(job.state)),
        words(job.user),
        words(age(job, now_ms), 0 if start is None else now_ms - start),
        Cell(spark(one.course, _SPARK, 0.0), newest_of(one.course)),
        *(number(joined(one.values, metric)) for _, metric in COLUMNS),
    ]
    return Row(f"{job.project}/{job.id}", cells)
