"""Screen of one job: its health, unusual ranks, and reasons."""

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Container, VerticalScroll
from textual.screen import Screen
from textual.widgets import Footer, Static

from jobmeter.cli.findings import details, origin, rank_marked_replicas, sentence, severity
from jobmeter.cli.output import cell
from jobmeter.cli.resource_columns import COLUMNS, Joined, age, join_values
from jobmeter.cli.screens.base import LiveScreen, format_moment
from jobmeter.cli.screens.draw import FAR_STYLE, MEMORY_STYLE, USE_STYLE, Cell, bar, get_newest, number, spark, words
from jobmeter.cli.screens.table import LiveTable, TableRow, columns
from jobmeter.cli.screens.watch import COURSE_SECONDS, FINDING_SECONDS, Courses, WatchParts, WatchScreen
from jobmeter.model.answers import LatestValue
from jobmeter.model.finding import Finding
from jobmeter.model.quantity import quantity

_SPARK, _BAR = 20, 10
_RANK_SPARE = (
    *("disk read", "net in", "disk write", "net out", "npu memory", "power", "gpu memory", "memory", "rank"),
    *("cpu", "node", "npu", "gpu"),
)
_OF_DEVICE = (
    ("use", ("gpu.utilization", "npu.utilization")),
    ("memory", ("gpu.memory.utilization", "npu.memory.utilization")),
    ("used", ("gpu.memory.usage", "npu.memory.usage")),
    ("power", ("gpu.power", "npu.power")),
    ("temperature", ("gpu.temperature", "npu.temperature")),
)
_DEVICE_SPARE = ("used", "power", "temperature", "memory", "node")
_NO_RANK = 1 << 30


_USED = tuple(name for name, _ in COLUMNS)
RANK_COLUMNS = columns(("replica", "rank", "node", "course", *_USED), ("rank", *_USED), _RANK_SPARE)
DEVICE_COLUMNS = columns(
    ("device", "replica", "node", *(name for name, _ in _OF_DEVICE)), ("used", "power", "temperature"), _DEVICE_SPARE
)


def rank_rows(parts: WatchParts, courses: Courses, findings: Sequence[Finding]) -> list[TableRow]:
    """Build a row for each replica: marked ones with findings, worst first, then the others by rank."""
    named = rank_marked_replicas(findings)
    by_replica: dict[str, list[LatestValue]] = {}
    for value in parts.values:
        by_replica.setdefault(value.replica, []).append(value)
    order = sorted(
        by_replica,
        key=lambda name: (named.get(name, len(named)), parts.ranks.get(name, _NO_RANK), len(name), name),
    )
    return [_rank_row(name, by_replica[name], parts.ranks.get(name), courses, is_named=name in named) for name in order]


def _rank_row(name: str, values: list[LatestValue], rank: int | None, courses: Courses, *, is_named: bool) -> TableRow:
    course = courses.replicas.get(name)
    line = spark(course, _SPARK, courses.top)
    if is_named:
        line.stylize(FAR_STYLE)
    nodes = {value.node for value in values} - {""}
    cells = [
        words(name or "(job)", style=FAR_STYLE if is_named else ""),
        Cell(words("" if rank is None else str(rank)).text, rank),
        words(", ".join(sorted(nodes))),
        Cell(line, get_newest(course)),
        *(number(join_values(values, metric)) for _, metric in COLUMNS),
    ]
    return TableRow(name, cells)


def device_rows(parts: WatchParts, findings: Sequence[Finding]) -> list[TableRow]:
    """Build a row for each device: bars of its use and of its memory, power, temperature. Ordered as the ranks."""
    named = rank_marked_replicas(findings)
    by_device: dict[tuple[str, str, str], list[LatestValue]] = {}
    for value in parts.values:
        if value.device:
            by_device.setdefault((value.replica, value.node, value.device), []).append(value)
    order = sorted(
        by_device,
        key=lambda key: (
            *(named.get(key[0], len(named)), parts.ranks.get(key[0], _NO_RANK)),
            *(len(key[0]), key[0], len(key[2]), key[2]),
        ),
    )
    return [_device_row(key, by_device[key], is_named=key[0] in named) for key in order]


def _device_row(key: tuple[str, str, str], values: list[LatestValue], *, is_named: bool) -> TableRow:
    replica, node, device = key
    found = {name: _join_first_measured(values, metrics) for name, metrics in _OF_DEVICE}
    cells = [
        words(device),
        words(replica, style=FAR_STYLE if is_named else ""),
        words(node),
        bar(found["use"], _BAR, USE_STYLE),
        bar(found["memory"], _BAR, MEMORY_STYLE),
        *(number(found[name]) for name in ("used", "power", "temperature")),
    ]
    return TableRow("\0".join(key), cells)


def _join_first_measured(values: list[LatestValue], metrics: tuple[str, ...]) -> Joined:
    return next((found for metric in metrics if (found := join_values(values, metric)).value is not None), Joined(None))


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
        grid.add_row(severity(one), f"{cell(sentence(one))} {origin(one)}")
        for name, text in details(one):
            grid.add_row(f"[dim]{cell(name)}[/]", cell(text))
        grid.add_row()
    return grid


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
        self._courses = Courses()
        self._findings: Sequence[Finding] | None = None
        self._of_devices = False

    def compose(self) -> ComposeResult:
        """Show, from top to bottom: the job, its findings, its charts, its ranks and devices, the keys."""
        yield Static("Loading…", id="title", markup=False)
        yield Static("", id="found")
        yield Static("", id="courses")
        with Container(id="members"):
            yield LiveTable("ranks")
            yield LiveTable("devices")
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        """Begin to poll: usage often, the rest less often."""
        self.query_one("#ranks").focus()
        self.follow(self._pause, lambda: self._watch.parts(self._job, self._project), self._show)
        self.follow(COURSE_SECONDS, self._read_courses, self._show_courses)
        self.follow(FINDING_SECONDS, lambda: self._watch.findings(self._job, self._project), self._show_findings)

    def on_resize(self, _: events.Resize) -> None:
        """Show ranks and devices together on a tall terminal."""
        self._arrange()
        self._draw_findings()
        self._draw_courses()

    def action_devices(self) -> None:
        """Show the devices in place of the ranks, or move to the other table if both are shown."""
        self._of_devices = not self._of_devices
        self._arrange()
        self.query_one("#devices" if self._of_devices else "#ranks").focus()

    async def action_findings(self) -> None:
        """Show every finding with its evidence and advice."""
        await self.app.push_screen(FindingsScreen(self._job, self._findings or []))

    def _read_courses(self) -> Courses:
        return self._watch.courses(self._parts or self._watch.parts(self._job, self._project))

    def _show(self, found: WatchParts) -> None:
        self._parts = found
        self.say(_title(found, self.size.width - 2))
        self._draw_members()

    def _show_courses(self, found: Courses) -> None:
        self._courses = found
        self._draw_courses()
        self._draw_findings()
        self._draw_members()

    def _show_findings(self, found: Sequence[Finding]) -> None:
        self._findings = found
        self._draw_findings()
        self._draw_members()

    def _draw_members(self) -> None:
        if self._parts is None:
            return
        ranks = rank_rows(self._parts, self._courses, self._findings or ())
        self.query_one("#ranks", LiveTable).present(RANK_COLUMNS, ranks)
        self.query_one("#devices", LiveTable).present(DEVICE_COLUMNS, device_rows(self._parts, self._findings or ()))
        self._arrange()

    def _arrange(self) -> None:
        ranks, devices = self.query_one("#ranks", LiveTable), self.query_one("#devices", LiveTable)
        some = devices.row_count > 0
        tall = self.size.height >= _TALL
        devices.display = some and (tall or self._of_devices)
        ranks.display = tall or not devices.display

    def _draw_courses(self) -> None:
        width = max(self.size.width - 34, 16)
        lines = [
            Text.assemble(
                (f"{metric:<16}", "bold"),
                spark(course, width, 1.0 if unit == "1" else 0.0),
                "  ",
                quantity(get_newest(course), unit),
            )
            for metric, (course, unit) in self._courses.whole.items()
        ]
        self.query_one("#courses", Static).update(Text("\n").join(lines))

    def _draw_findings(self) -> None:
        if self._findings is None:
            return
        most = _SHOWN_TALL if self.size.height >= _TALL else _SHOWN_SMALL
        lines = Table.grid(padding=(0, 1))
        for one in self._findings[:most]:
            lines.add_row(severity(one), f"{cell(sentence(one))} {origin(one)}")
        if len(self._findings) > most:
            lines.add_row("", f"[dim]{len(self._findings) - most} more: f[/]")
        self.query_one("#found", Static).update(lines if self._findings else Text("no rule found anything", "dim"))


def _title(parts: WatchParts, width: int) -> str:
    """Format the job's identity and state; without its name if there is no room."""
    job = parts.job
    tail = f"{job.state}  {age(job, parts.now_ms)}  {format_moment(parts.now_ms)[11:]}"
    whole = f"{job.id}  {job.name}  {tail}"
    return whole if job.name not in {"", job.id} and len(whole) <= width else f"{job.id}  {tail}"
