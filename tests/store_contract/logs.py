"""Store contract for log lines; ``tests.store_contract.store.StoreTests`` inherits it."""

from collections.abc import Iterable, Sequence

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jobmeter.errors import LimitExceededError
from jobmeter.model.event import Level
from jobmeter.model.log import MAX_TEXT_BYTES, LogLine, LogPage
from jobmeter.model.series import compute_job_key
from jobmeter.model.shipper import OutboxRow
from jobmeter.store.base import PAGE_BYTES, LogSelector, Store
from tests.store_contract.samples import BUDGET, FOREVER
from tests.store_contract.slot import Slot

_SECOND = 1_000_000_000
_DAY = 86_400 * _SECOND
_LEVELS = (None, *Level)


def line_of(slot: Slot, at_ns: int, text: str = "", **parts: object) -> LogLine:
    """Build a line of the slot's job, ``at_ns`` nanoseconds after its start."""
    values: dict[str, object] = {"replica": "worker-0", **parts}
    return LogLine(time_ns=slot.start * 1_000_000 + at_ns, text=text, job=slot.job, **values)  # type: ignore[arg-type]


def read_lines(store: Store, slot: Slot, **parts: object) -> LogPage:
    """Read a page of the slot's job."""
    values: dict[str, object] = {"project": "default", "job": slot.job, "limit": 10_000, **parts}
    return store.logs.read(LogSelector(**values), BUDGET)  # type: ignore[arg-type]


def expected(lines: Iterable[LogLine], selector: LogSelector) -> LogPage:
    """Select the expected page line by line."""
    own = (line for line in lines if (line.project, line.job) == (selector.project, selector.job))
    once = {(line.time_ns, line.replica, line.attempt, line.stream, line.text): line for line in own}
    order = sorted(once, key=lambda key: (*key[:4], key[4].encode()))
    found = [once[key] for key in order if _matches(once[key], selector)]
    page = (found[::-1] if selector.descending else found)[selector.offset :][: selector.limit]
    if not selector.count:
        return LogPage(page)
    return LogPage(page, len(found), sum(len(line.text.encode()) for line in found))


def _matches(line: LogLine, selector: LogSelector) -> bool:
    conditions = (
        not selector.replicas or line.replica in selector.replicas,
        selector.attempt in {None, line.attempt},
        selector.stream in {"", line.stream},
        selector.min_level is None or line.level in list(Level)[list(Level).index(selector.min_level) :],
        selector.contains.lower() in line.text.lower(),
        selector.start_ns is None or line.time_ns >= selector.start_ns,
        selector.end_ns is None or line.time_ns < selector.end_ns,
    )
    return all(conditions)


class LogTests:
    """Contract tests for log lines."""

    def test_lines_come_back_as_they_were_written(self, store: Store, slot: Slot) -> None:
        lines = [
            line_of(slot, 0, "epoch 1", stream="stderr", attempt=2, node="n1", level=Level.WARNING),
            line_of(slot, 1, ""),
            line_of(slot, 2, '\t "quoted" \\ back\x00slash\x1b[31m é 🚀 \u2028 {x:String} %s'),
            line_of(slot, 3, "x" * MAX_TEXT_BYTES, level=Level.DEBUG, replica=""),
        ]
        store.logs.append(lines, FOREVER)
        assert read_lines(store, slot).lines == lines
        assert read_lines(store, slot, descending=True).lines == lines[::-1]
        assert read_lines(store, slot, project="other").lines == []

    def test_an_append_of_no_lines_has_no_effect(self, store: Store, slot: Slot) -> None:
        store.logs.append([], FOREVER)
        assert read_lines(store, slot, count=True) == LogPage([], 0, 0)
        assert read_lines(store, slot, limit=0, count=True) == LogPage([], 0, 0)

    def test_a_line_counts_once_in_any_grouping(self, store: Store, slot: Slot) -> None:
        lines = [line_of(slot, at * _SECOND, f"line {at}") for at in range(200)]
        for size in (200, 7, 50):
            for start in range(0, len(lines), size):
                store.logs.append(lines[start : start + size] * 2, FOREVER)
        assert read_lines(store, slot).lines == lines
        assert read_lines(store, slot, limit=10, offset=95).lines == lines[95:105]
        assert read_lines(store, slot, limit=10, offset=195, descending=True).lines == lines[4::-1]
        page = read_lines(store, slot, limit=0, count=True)
        assert (page.total, page.total_bytes) == (200, sum(len(line.text) for line in lines))

    def test_what_was_written_last_says_the_level_and_the_node(self, store: Store, slot: Slot) -> None:
        line = line_of(slot, 0, "text")
        store.logs.append([line], FOREVER)
        newer = msgspec.structs.replace(line, level=Level.ERROR, node="n2")
        store.logs.append([newer], FOREVER)
        assert read_lines(store, slot).lines == [newer]
        assert read_lines(store, slot, descending=True).lines == [newer]

    def test_lines_of_equal_time_have_an_order(self, store: Store, slot: Slot) -> None:
        lines = [
            line_of(slot, 5, text, replica=replica, attempt=attempt, stream=stream)
            for replica in ("worker-0", "worker-1", "worker-10")
            for attempt in (0, 2, 10)
            for stream in ("stderr", "stdout")
            for text in ("", "B", "a", "é", "\U0001f600")
        ]
        store.logs.append(lines[::-1], FOREVER)
        assert read_lines(store, slot).lines == lines
        assert read_lines(store, slot, descending=True).lines == lines[::-1]
        paged = [read_lines(store, slot, offset=at, limit=7).lines for at in range(0, len(lines), 7)]
        assert [line for page in paged for line in page] == lines

    def test_a_time_range_holds_its_start_and_not_its_end(self, store: Store, slot: Slot) -> None:
        lines = [line_of(slot, at, str(at)) for at in range(10)]
        store.logs.append(lines, FOREVER)
        start = slot.start * 1_000_000
        assert read_lines(store, slot, start_ns=start + 2, end_ns=start + 5).lines == lines[2:5]
        assert read_lines(store, slot, end_ns=start).lines == []

    @pytest.mark.parametrize(
        ("part", "found"),
        [
            ("LOSS", {"loss=0.5", "Loss: 1"}),
            ("%", {"100% done"}),
            ("_", {"a_b"}),
            ("a_b", {"a_b"}),
            (".*", {"x.*y"}),
            ("'", {"it's"}),
            ('"', {'say "no"'}),
            ("\\", {"back\\slash"}),
            ("\\n", set()),
            ("\t", {"tab\tstop"}),
            ("ÉTÉ", {"été"}),
            ("{x}", {"{x}"}),
            ("🚀", {"🚀 go"}),
        ],
    )
    def test_a_part_is_looked_for_as_it_stands_in_any_case(
        self, store: Store, slot: Slot, part: str, found: set[str]
    ) -> None:
        texts = ["loss=0.5", "Loss: 1", "100% done", "a_b", "axb", "x.*y", "it's", 'say "no"', "back\\slash"]
        texts += ["tab\tstop", "été", "{x}", "🚀 go"]
        store.logs.append([line_of(slot, at, text) for at, text in enumerate(texts)], FOREVER)
        assert {line.text for line in read_lines(store, slot, contains=part).lines} == found

    def test_levels_below_the_least_are_left_out(self, store: Store, slot: Slot) -> None:
        lines = [line_of(slot, at, str(level), level=level) for at, level in enumerate(_LEVELS)]
        store.logs.append(lines, FOREVER)
        assert read_lines(store, slot, min_level=None).lines == lines
        for at, level in enumerate(_LEVELS):
            if level is not None:
                assert read_lines(store, slot, min_level=level).lines == lines[at:]

    def test_a_far_offset_of_many_lines(self, store: Store, slot: Slot) -> None:
        # Some lines have equal times, and all lines are written twice.
        lines = [line_of(slot, at // 5 * 5, f"{at:06}", replica=f"worker-{at % 2}") for at in range(12_000)]
        store.logs.append(lines, FOREVER)
        store.logs.append(lines[::2], FOREVER)
        store.logs.append(lines[1::2], FOREVER)
        lines.sort(key=lambda line: line.order)
        for offset in (0, 1999, 2000, 2001, 2003, 7777, 11_990, 12_000, 20_000):
            assert read_lines(store, slot, offset=offset, limit=100).lines == lines[offset:][:100]
            backwards = read_lines(store, slot, offset=offset, limit=100, descending=True)
            assert backwards.lines == lines[::-1][offset:][:100]

    def test_lines_of_many_days(self, store: Store, slot: Slot) -> None:
        first = -300 * _DAY
        lines = [line_of(slot, first + day * _DAY, f"day {day}") for day in range(250)]
        store.logs.append(lines[::-1], FOREVER)
        assert read_lines(store, slot).lines == lines

    def test_a_page_of_too_many_bytes_is_refused(self, store: Store, slot: Slot) -> None:
        text = "y" * (MAX_TEXT_BYTES - 4)
        count = PAGE_BYTES // MAX_TEXT_BYTES + 2
        store.logs.append([line_of(slot, at, f"{at:04}{text}") for at in range(count)], FOREVER)
        with pytest.raises(LimitExceededError) as caught:
            read_lines(store, slot)
        assert caught.value.field == "limit"
        assert len(read_lines(store, slot, limit=count - 4).lines) == count - 4

    def test_lines_of_a_deleted_job_are_gone_and_may_come_back(self, store: Store, slot: Slot) -> None:
        other = Slot()
        store.logs.append([line_of(slot, 0, "mine"), line_of(other, 0, "theirs")], FOREVER)
        store.delete_job(compute_job_key("default", slot.job))
        assert read_lines(store, slot, count=True) == LogPage([], 0, 0)
        assert [line.text for line in read_lines(store, other).lines] == ["theirs"]
        store.logs.append([line_of(slot, 0, "mine")], FOREVER)
        assert [line.text for line in read_lines(store, slot).lines] == ["mine"]

    def test_the_outbox_gives_rows_by_number_each_once(self, store: Store, slot: Slot) -> None:
        shipper, other = compute_job_key("shipper", slot.job), compute_job_key("other", slot.job)
        now_ms = slot.start
        rows = [OutboxRow(at, now_ms, 30_000, f'{{"text":"é \\u0000 {at}"}}'.encode()) for at in range(1, 301)]
        store.outbox.append(shipper, rows[100:])
        store.outbox.append(shipper, rows[:150])
        store.outbox.append(other, rows[:1])
        assert store.outbox.read(shipper, 0, 1_000, 2**20) == rows
        assert store.outbox.read(shipper, 120, 7, 2**20) == rows[120:127]
        assert store.outbox.read(shipper, 300, 7, 2**20) == []
        assert store.outbox.read(shipper, 0, 1_000, len(rows[0].line) * 2) == rows[:2]
        assert store.outbox.read(shipper, 0, 1_000, 1) == rows[:1]
        store.outbox.trim(shipper, 299)
        assert store.outbox.read(shipper, 0, 1_000, 2**20) == rows[299:]
        store.outbox.trim(shipper, None)
        assert store.outbox.read(shipper, 0, 1_000, 2**20) == []
        assert store.outbox.read(other, 0, 1_000, 2**20) == rows[:1]

    def test_statistics_count_lines(self, store: Store, slot: Slot) -> None:
        store.logs.append([line_of(slot, at, str(at)) for at in range(300)], FOREVER)
        found = store.read_statistics()
        assert found.rows["logs"] >= 300
        assert found.bytes["logs"] > 0

    @settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
    @given(data=st.data())
    def test_any_lines_and_any_question_equal_a_list(self, store: Store, data: st.DataObject) -> None:
        slot = Slot()
        names = st.sampled_from(["worker-0", "worker-1", "worker-10"])
        texts = st.one_of(st.sampled_from(["a", "A b", "b%"]), st.text("aAbB%_\\'\"\t\n\x00é", max_size=6))
        lines = st.builds(
            lambda at, text, replica, attempt, stream, level, node: line_of(
                slot, at, text, replica=replica, attempt=attempt, stream=stream, level=level, node=node
            ),
            st.integers(0, 30),
            texts,
            names,
            st.integers(0, 2),
            st.sampled_from(["stdout", "stderr"]),
            st.sampled_from(_LEVELS),
            st.sampled_from(["", "n1"]),
        )
        stored: list[LogLine] = []
        for _ in range(data.draw(st.integers(1, 4), "appends")):
            some: Sequence[LogLine] = data.draw(st.lists(lines, max_size=40), "lines")
            store.logs.append(some, FOREVER)
            # It is undefined which of two copies in one call is the last.
            stored += list({line.order: line for line in some}.values())
        begin = slot.start * 1_000_000
        bounds = st.one_of(st.none(), st.integers(0, 31).map(begin.__add__))
        for _ in range(4):
            selector = LogSelector(
                project="default",
                job=slot.job,
                replicas=data.draw(st.frozensets(names, max_size=2)),
                attempt=data.draw(st.one_of(st.none(), st.integers(0, 2))),
                stream=data.draw(st.sampled_from(["", "", "stderr"])),
                min_level=data.draw(st.sampled_from(_LEVELS)),
                contains=data.draw(st.one_of(st.just(""), texts)),
                start_ns=data.draw(bounds),
                end_ns=data.draw(bounds),
                descending=data.draw(st.booleans()),
                offset=data.draw(st.integers(0, 10)),
                limit=data.draw(st.integers(0, 50)),
                count=data.draw(st.booleans()),
            )
            found = store.logs.read(selector, BUDGET)
            assert found.total == expected(stored, selector).total
            assert [line.order for line in found.lines] == [line.order for line in expected(stored, selector).lines]
