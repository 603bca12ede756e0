"""Tests of log files renamed, moved or removed before they are listed: their lines are read or counted as lost."""

import os
import shutil
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.waiting import wait_until
from tests.unit.collect.log_node import Node, append, lines_in

from jobmeter.collect.syslog import watch
from jobmeter.collect.syslog.successors import MOST_WAITING


@pytest.fixture
def logs(tmp_path):
    made = tmp_path / "logs"
    made.mkdir()
    return made


@pytest.fixture
def node(tmp_path, logs):
    made = Node(tmp_path, [logs / "*.log"])
    assert made.rounds() == []
    return made


@pytest.fixture
def blind(monkeypatch):
    """Make the machine's kernel report no changes of files."""

    def fail():
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(watch, "Inotify", fail)


def shift(path):
    """Rotate as logrotate does: app.log.1 becomes app.log.2, and so on."""
    numbers = sorted((int(one.suffix[1:]) for one in path.parent.glob(f"{path.name}.*")), reverse=True)
    for number in numbers:
        path.with_name(f"{path.name}.{number}").rename(path.with_name(f"{path.name}.{number + 1}"))
    path.rename(path.with_name(f"{path.name}.1"))


def by_date(path):
    """Rotate to a name with a date, a later one each time."""
    count = len(list(path.parent.glob(f"{path.name}-*")))
    path.rename(path.with_name(f"{path.name}-202611{count:02}"))


def written_in_turn(path, generations, rotate):
    """Write generations of a log, each rotated away before the next; return their lines."""
    texts = []
    for generation in range(generations):
        if generation:
            rotate(path)
        some = [f"{path.name} {generation} {at}" for at in range(generation + 1)]
        append(path, *some)
        stamp = path.stat().st_mtime_ns + generation * 10**7  # generations within one tick of the kernel's clock
        os.utime(path, ns=(stamp, stamp))
        texts += some
    return texts


@pytest.mark.parametrize("rotate", [shift, by_date])
@pytest.mark.parametrize("generations", [2, 3, 7, MOST_WAITING + 5])
def test_files_that_were_rotated_before_they_were_listed_are_read_in_their_order(node, logs, generations, rotate):
    expected = written_in_turn(logs / "app.log", generations, rotate)
    assert node.texts(200) == expected
    assert node.watch.lost == 0
    append(logs / "app.log", "and on")
    assert node.texts() == ["and on"]


@pytest.mark.parametrize("rotate", [shift, by_date])
@pytest.mark.usefixtures("blind")
def test_they_are_found_by_their_names_where_the_kernel_reports_nothing(tmp_path, logs, rotate, caplog):
    node = Node(tmp_path, [logs / "*.log"])
    assert node.rounds() == []
    expected = written_in_turn(logs / "app.log", 4, rotate)
    assert node.texts(200) == expected
    assert "the kernel does not report new log files" in caplog.text


@pytest.mark.parametrize("rotate", [shift, by_date])
def test_they_are_found_by_their_names_after_the_agent_was_away(node, tmp_path, logs, rotate):
    append(logs / "other.log", "before")
    shutil.copy2(logs / "other.log", logs / "app.log.7")  # an old rotated file of a log that does not exist
    os.utime(logs / "app.log.7", ns=(10**18, 10**18))
    assert node.texts() == ["before"]
    node.reader.stop()
    stamp = (tmp_path / "logs.json").stat().st_mtime_ns
    expected = written_in_turn(logs / "app.log", 3, rotate)
    for at, path in enumerate(sorted(logs.glob("app.log?[12]*"), key=lambda one: one.stat().st_mtime_ns)):
        os.utime(path, ns=(stamp + at + 1, stamp + at + 1))
    node.start()
    assert node.texts(200) == expected


def test_a_file_that_goes_on_is_read_through_any_number_of_rotations(node, logs):
    expected = []
    for turn in range(5):
        expected += written_in_turn(logs / "app.log", 4, shift)
        shift(logs / "app.log")
        append(logs / "app.log", f"turn {turn}")
        expected.append(f"turn {turn}")
        assert node.texts(60) == expected[-11:]
        shift(logs / "app.log")
    assert node.watch.lost == 0


@pytest.mark.parametrize("name", ["archive.txt", "app.log.done", "../logs2/app.log", "app", ".hidden"])
def test_a_file_that_was_renamed_to_any_name_that_is_watched_is_read(tmp_path, logs, name):
    (tmp_path / "logs2").mkdir()
    node = Node(tmp_path, [logs / "*.log", tmp_path / "logs2" / "*.txt"])
    assert node.rounds() == []
    append(logs / "app.log", "one", "two")
    (logs / "app.log").rename(logs / name)
    append(logs / "app.log", "three")
    lines = node.rounds(40)
    assert sorted(line.text for line in lines) == ["one", "three", "two"]
    assert {line.stream for line in lines} == {f"file:{logs / 'app.log'}"}
    assert node.watch.lost == 0


def test_any_number_of_files_with_any_names_is_read_where_they_stay(node, logs):
    for at in range(3 * MOST_WAITING):
        append(logs / "app.log", str(at))
        (logs / "app.log").rename(logs / f"done-{at}")
    assert sorted(map(int, node.texts(100))) == list(range(3 * MOST_WAITING))
    assert node.watch.lost == 0


def test_a_file_that_was_moved_out_of_sight_is_counted(node, tmp_path, logs):
    append(logs / "app.log", "one")
    (logs / "app.log").rename(tmp_path / "elsewhere")
    (line,) = node.rounds(40)
    assert (line.stream, line.severity, line.level) == (f"file:{logs / 'app.log'}", 4, "warning")
    assert line.text.startswith("[jobmeter: a file of this name was removed before it could be read")
    assert node.reader.counters == {"agent.log.dropped": 0, "agent.log.files.lost": 1}
    assert node.rounds(40) == []


@pytest.mark.parametrize("count", [1, 2, 50])
def test_files_that_were_removed_before_they_were_opened_are_counted(node, logs, count):
    for at in range(count):
        append(logs / "app.log", str(at))
        (logs / "app.log").unlink()
    append(logs / "other.log", "here")
    texts = node.texts(40)
    assert [text for text in texts if not text.startswith("[jobmeter")] == ["here"]
    (note,) = (text for text in texts if text.startswith("[jobmeter"))
    assert note.startswith("[jobmeter: a file" if count == 1 else f"[jobmeter: {count} files")
    assert node.watch.lost == count
    append(logs / "app.log", "again")
    assert node.texts(40) == ["again"]
    assert node.watch.lost == count


def test_a_file_that_was_opened_and_then_removed_is_read_to_its_end(node, logs):
    append(logs / "app.log", "one")
    node.watch.notice()  # like the agent's thread at the kernel's event
    append(logs / "app.log", "two")
    (logs / "app.log").unlink()
    append(logs / "app.log", "three")
    node.watch.notice()
    (logs / "app.log").unlink()
    assert node.texts(40) == ["one", "two", "three"]
    assert node.watch.lost == 0


def test_a_copy_beside_a_log_is_not_read_again(node, logs):
    append(logs / "app.log", "one")
    assert node.texts() == ["one"]
    append(logs / "app.log", "two")
    shutil.copy2(logs / "app.log", logs / "app.log.1")
    assert node.texts() == ["two"]
    os.truncate(logs / "app.log", 0)
    append(logs / "app.log", "three")
    assert node.texts(40) == ["three"]


def test_a_log_that_was_copied_and_truncated_before_it_was_listed_is_read_from_its_copy(node, logs):
    append(logs / "app.log", "one")
    shutil.copy(logs / "app.log", logs / "app.log.1")
    os.truncate(logs / "app.log", 0)
    append(logs / "app.log", "two")
    assert node.texts(40) == ["one", "two"]


def test_rotated_files_of_the_past_are_not_read_when_their_numbers_move(tmp_path, logs):
    for number in (1, 2):
        append(logs / f"app.log.{number}", f"past {number}")
        os.utime(logs / f"app.log.{number}", ns=(10**18, 10**18))
    node = Node(tmp_path, [logs / "*.log"])
    assert node.rounds() == []
    append(logs / "app.log", "one")
    shift(logs / "app.log")
    append(logs / "app.log", "two")
    assert node.texts(40) == ["one", "two"]
    shift(logs / "app.log")
    assert node.texts(300) == []
    append(logs / "app.log", "three")
    shift(logs / "app.log")
    (logs / "app.log.4").rename(logs / "app.log.9")
    assert node.texts(40) == ["three"]
    assert node.watch.lost == 0


def test_folders_that_come_later_are_watched_with_what_is_in_them(tmp_path, logs):
    node = Node(tmp_path, [logs / "*" / "*.log", logs / "**" / "deep.log"])
    assert node.rounds() == []
    (logs / "job-1").mkdir()
    expected = written_in_turn(logs / "job-1" / "app.log", 3, shift)
    (logs / "a" / "b" / "c").mkdir(parents=True)
    append(logs / "a" / "b" / "c" / "deep.log", "deep")
    assert sorted(node.texts(100)) == sorted([*expected, "deep"])
    more = written_in_turn(logs / "job-1" / "second.log", 3, by_date)
    assert node.texts(100) == more


def test_a_file_that_two_patterns_name_is_read_once(tmp_path, logs):
    node = Node(tmp_path, [logs / "*.log", logs / "app*", logs / "**" / "*.log"])
    append(logs / "app.log", "before")
    assert node.rounds() == []
    expected = written_in_turn(logs / "app-2.log", 3, shift)
    append(logs / "app.log", "after")
    assert sorted(node.texts(60)) == sorted([*expected, "after"])
    node.start()
    append(logs / "app.log", "again")
    assert node.texts(60) == ["again"]


def test_a_folder_that_is_replaced_by_another_is_watched_again(tmp_path, logs):
    node = Node(tmp_path, [logs / "app" / "*.log"])
    (logs / "app").mkdir()
    node.rounds()
    (logs / "app").rename(logs / "old")
    (logs / "app").mkdir()
    node.rounds()
    append(logs / "app" / "a.log", "one")
    (logs / "app" / "a.log").rename(logs / "app" / "a.txt")
    assert node.texts(40) == ["one"]


def test_a_name_that_matches_as_well_goes_on_where_the_other_was_read_to(node, logs):
    append(logs / "a.log", "one")
    assert node.texts() == ["one"]
    append(logs / "a.log", "two")
    (logs / "a.log").rename(logs / "b.log")
    append(logs / "b.log", "three")
    append(logs / "a.log", "other")
    lines = node.rounds(60)
    assert sorted((line.text, line.stream[-5:]) for line in lines) == [
        ("other", "a.log"), ("three", "b.log"), ("two", "b.log"),
    ]  # fmt: skip
    node.start()
    assert node.texts(60) == []


def test_names_that_cannot_be_printed_or_are_no_text_do_no_harm(node, logs):
    append(logs / "a\nb\x1b[2J.log", "one")
    append(Path(os.fsdecode(os.fsencode(logs) + b"/\xff.log")), "two")
    append(logs / "é中.log", "three")
    lines = node.rounds(40)
    assert sorted(line.text for line in lines) == ["one", "three"]
    assert all(line.stream.isprintable() for line in lines)
    node.start()
    append(logs / "a\nb\x1b[2J.log", "more")
    assert node.texts(40) == ["more"]


def test_more_changes_than_the_kernel_stores_lose_no_file_that_stays(node, logs, caplog):
    most = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    for _ in range(most // 2 + 10):
        descriptor = os.open(logs / "busy.txt", os.O_CREAT | os.O_WRONLY)
        os.close(descriptor)
        (logs / "busy.txt").unlink()
    expected = written_in_turn(logs / "app.log", 3, shift)
    assert node.texts(100) == expected
    expected = written_in_turn(logs / "next.log", 3, shift)
    assert node.texts(100) == expected


def test_the_agent_s_thread_reads_files_whose_names_last_for_a_moment(node, logs):
    reader = node.reader
    node.time.ns = 1_800_000_000_000_000_000
    got: list[str] = []

    def arrived(count):
        got.extend(line.text for line in lines_in(node.outbox))
        return sum(not text.startswith("[jobmeter") for text in got) + node.watch.lost >= count

    reader.start()
    try:
        for at in range(300):
            append(logs / "app.log", str(at))
            (logs / "app.log").rename(logs / f"app.log.{at + 1}")
        wait_until(lambda: arrived(300), "every file is read")
    finally:
        reader.stop()
    texts = [text for text in got if not text.startswith("[jobmeter")]
    assert sorted(map(int, texts)) == list(range(300))
    assert node.watch.lost == 0


class World:
    """Files under names, and the fate of their lines: read if the file was opened in time, else lost with it."""

    def __init__(self, folder):
        self.folder = folder
        self.files: dict[str, int] = {}
        self.lines: dict[int, list[str]] = {}
        self.opened: set[int] = set()
        self.lost: list[int] = []
        self.births = 0

    def write(self, name):
        if name not in self.files:
            self.births += 1
            self.files[name] = self.births
            self.lines[self.births] = []
        text = f"{self.files[name]}:{len(self.lines[self.files[name]])}"
        self.lines[self.files[name]].append(text)
        append(self.folder / name, text)

    def rename(self, name, other):
        if name in self.files and name != other:
            self._gone(other)
            (self.folder / name).rename(self.folder / other)
            self.files[other] = self.files.pop(name)

    def remove(self, name):
        if name in self.files:
            (self.folder / name).unlink()
            self._gone(name)

    def looked_at(self):
        self.opened |= set(self.files.values())

    def _gone(self, name):
        file = self.files.pop(name, None)
        if file is not None and file not in self.opened:
            self.lost.append(file)

    def expected(self):
        return Counter(text for file, texts in self.lines.items() if file not in self.lost for text in texts)


_LIVE = st.sampled_from(["a.log", "b.log"])
_ANY = st.sampled_from(
    ["a.log", "b.log", "a.log.1", "a.log.2", "b.log.1", "b.log.2", "b.log-20261122", "aside", "a.txt"]
)
_ASIDE = st.sampled_from(["a.log", "b.log", "aside", "a.txt"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), _LIVE),
        st.tuples(st.just("rename"), _ASIDE, _ASIDE),
        st.tuples(st.just("rename"), st.just("b.log"), st.just("b.log-20261122")),
        st.tuples(st.just("rename"), st.just("a.log.1"), st.just("a.log")),
        st.tuples(st.just("rotate"), _LIVE),
        st.tuples(st.just("remove"), _ANY),
        st.tuples(st.just("look")),
    ),
    max_size=25,
)
"""Steps that give a file only the names that rotation makes from its own path."""


@settings(max_examples=100)
@given(STEPS)
def test_whatever_is_renamed_every_line_comes_once_or_its_file_is_counted(steps):
    with TemporaryDirectory() as place:
        folder = Path(place, "logs")
        folder.mkdir()
        node, world = Node(Path(place), [folder / "*.log"]), World(folder)
        got = Counter(node.texts())
        for step, *names in steps:
            match step:
                case "write":
                    world.write(*names)
                case "rename":
                    world.rename(*names)
                case "rotate":
                    world.rename(f"{names[0]}.1", f"{names[0]}.2")
                    world.rename(names[0], f"{names[0]}.1")
                case "remove":
                    world.remove(*names)
                case _:
                    got += Counter(node.texts(1))
                    world.looked_at()
        got += Counter(node.texts(250))
        node.reader.stop()
        notes = Counter({text: count for text, count in got.items() if text.startswith("[jobmeter")})
        assert got - notes == world.expected()
        assert node.watch.lost == len(world.lost)
