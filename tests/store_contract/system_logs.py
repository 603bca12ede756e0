"""Store contract for system logs and searches; ``StoreTests`` inherits it."""

import re
from collections.abc import Callable
from fnmatch import fnmatchcase

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jobmeter.model.event import Level
from jobmeter.model.log import LogLine
from jobmeter.model.log_query import parse_log_query
from jobmeter.model.series import compute_job_key
from jobmeter.store.base import LogSelector, Store
from tests.store_contract.samples import BUDGET, FOREVER
from tests.store_contract.slot import Slot

_Search = tuple[str, Callable[[LogLine], bool]]
"""Search text, and a Python function that returns True if it matches a line."""
_PARTS = ("xid", "Xid", "oom", "79", "é", "ÉTÉ", "page", "fault", "a_b", "error", "err", "errors", "eRR0r")


def system_line(slot: Slot, at_ns: int, text: str, **parts: object) -> LogLine:
    """Build a kernel log line of the slot's node, ``at_ns`` nanoseconds after its start."""
    values: dict[str, object] = {"facility": "kern", "stream": "kernel", "node": slot.job, **parts}
    return LogLine(time_ns=slot.start * 1_000_000 + at_ns, text=text, **values)  # type: ignore[arg-type]


def _read(store: Store, slot: Slot, **parts: object) -> list[LogLine]:
    values: dict[str, object] = {"node": slot.job, "projects": frozenset({"default"}), "limit": 1_000, **parts}
    return store.logs.read(LogSelector(**values), BUDGET).lines  # type: ignore[arg-type]


def _words(text: str) -> list[str]:
    return re.findall(r"[0-9a-zé]+", text.lower())


def _has(*wanted: str) -> Callable[[LogLine], bool]:
    """Return a function that finds adjacent words matching these patterns."""

    def found(line: LogLine) -> bool:
        own, size = _words(line.text), len(wanted)
        runs = [own[at : at + size] for at in range(len(own) - size + 1)]
        return any(all(map(fnmatchcase, run, wanted)) for run in runs)

    return found


def _severity(line: LogLine) -> int | None:
    if line.severity is not None:
        return line.severity
    return {Level.ERROR: 3, Level.WARNING: 4, Level.INFO: 6, Level.DEBUG: 7}[line.level] if line.level else None


def _level(line: LogLine) -> str:
    if line.level is not None:
        return line.level.value
    if line.severity is None:
        return ""
    return ("error", "error", "error", "error", "warning", "info", "info", "debug")[line.severity]


def _worse(line: LogLine, than: int) -> bool:
    severity = _severity(line)
    return severity is not None and severity <= than


_AND = st.sampled_from(["", "AND", "and", "&&"])
_TERMS: st.SearchStrategy[_Search] = st.one_of(
    st.sampled_from(["xid", "Xid", "OOM", "79", "é", "Été", "page", "error", "errors"]).map(
        lambda word: (word, _has(word.lower()))
    ),
    st.sampled_from(["err*", "er?or", "*r", "?", "e*r*s", "ERR?R", "pa?e", "*", "x?*", "é*", "*t*"]).map(
        lambda word: (word, (lambda line: True) if word == "*" else _has(word.lower()))
    ),
    st.sampled_from(
        [
            ('"page fault"', _has("page", "fault")),
            ("page-fault", _has("page", "fault")),
            ('"xid 79"', _has("xid", "79")),
            ('"err* 79"', _has("err", "79")),
            ("page-f*", _has("page", "f*")),
            ("*-79", _has("*", "79")),
            ("Msg:err*", _has("err*")),
            ('text:"page fault"', _has("page", "fault")),
        ]
    ),
    st.sampled_from(
        [
            ("severity:err", lambda line: _severity(line) == 3),
            ("Severity=WARN", lambda line: _severity(line) == 4),
            ("severity>=4", lambda line: _severity(line) in {4, 5, 6, 7}),
            ("severity < 4", lambda line: _worse(line, 3)),
            ("severity:<=0", lambda line: _worse(line, 0)),
            ("severity!=3", lambda line: _severity(line) != 3),
            ("severity:(err or warning)", lambda line: _severity(line) in {3, 4}),
            ("severity:e*", lambda line: _severity(line) in {0, 3}),
            ("severity:*", lambda line: _severity(line) is not None),
            ('severity:""', lambda line: _severity(line) is None),
            ("level:error", lambda line: _level(line) == "error"),
            ("level>=warn", lambda line: _level(line) in {"warning", "error"}),
            ("Level:(info|debug)", lambda line: _level(line) in {"info", "debug"}),
            ("facility:KERN", lambda line: line.facility == "kern"),
            ("facility:k*|user", lambda line: line.facility in {"kern", "user"}),
            ("tag:sshd", lambda line: line.tag == "sshd"),
            ('Syslogtag:"a b"', lambda line: line.tag == "a b"),
            ("tag:*b", lambda line: line.tag.endswith("b")),
            ("tag:a?b", lambda line: len(line.tag) == 3 and line.tag[::2] == "ab"),
            ("tag:*", lambda line: bool(line.tag)),
            ('tag:"*"', lambda line: line.tag == "*"),
            ("tag:sshd|100%", lambda line: line.tag in {"sshd", "100%"}),
            ("tag:10?%", lambda line: line.tag == "100%"),
            ("tag!=sshd", lambda line: line.tag != "sshd"),
            ("source:file:/var/log/*.log", lambda line: line.stream.startswith("file:/var/log/")),
            ("TagPath:/var/log/a_b.log", lambda line: line.stream == "file:/var/log/a_b.log"),
            ("TagPath:/var/log/?x?.log", lambda line: line.stream == "file:/var/log/axb.log"),
            ("stream:kernel", lambda line: line.stream == "kernel"),
            ("attempt:0", lambda line: True),
            ("attempt > 0", lambda line: False),
        ]
    ),
)
SEARCHES: st.SearchStrategy[_Search] = st.recursive(
    _TERMS,
    lambda inner: st.one_of(
        st.builds(
            lambda one, how, other: (f"({one[0]} {how} {other[0]})", lambda line: one[1](line) and other[1](line)),
            inner,
            _AND,
            inner,
        ),
        st.builds(
            lambda one, how, other: (f"({one[0]} {how} {other[0]})", lambda line: one[1](line) or other[1](line)),
            inner,
            st.sampled_from(["OR", "or", "|", "||"]),
            inner,
        ),
        st.builds(
            lambda how, one: (f"({how} {one[0]})", lambda line: not one[1](line)),
            st.sampled_from(["NOT", "not"]),
            inner,
        ),
    ),
    max_leaves=6,
)
"""Searches in explicit parentheses, which leave no ambiguity of precedence."""


class SystemLogTests:
    """Contract tests for system logs and searches."""

    def test_system_lines_come_back_as_they_were_written(self, store: Store, slot: Slot) -> None:
        lines = [
            system_line(slot, 0, "NVRM: Xid (PCI:0000:3b:00): 79", severity=3, level=Level.ERROR),
            system_line(slot, 1, "Killed process 7", severity=0, job="j", replica="worker-0", tag="kernel"),
            system_line(slot, 2, "no severity", facility="local7", stream="file:/var/log/a b.log"),
        ]
        store.logs.append(lines, FOREVER)
        assert _read(store, slot) == lines
        assert _read(store, slot, descending=True) == lines[::-1]
        assert _read(store, slot, projects=frozenset({"other"})) == []
        assert _read(store, slot, projects=frozenset()) == []
        assert _read(store, slot, max_severity=0) == lines[1:2]

    def test_the_subject_of_a_line_is_no_part_of_its_identity(self, store: Store, slot: Slot) -> None:
        for job in ("", "j"):
            store.logs.append([system_line(slot, 0, "once", job=job)], FOREVER)
        assert [line.job for line in _read(store, slot)] == ["j"]

    def test_projects_that_use_one_name_for_a_node_stay_apart(self, store: Store, slot: Slot) -> None:
        lines = [system_line(slot, at, "same", project=("default", "other")[at % 2]) for at in range(6)]
        store.logs.append([*lines, system_line(slot, 0, "same", project="other")], FOREVER)
        assert _read(store, slot) == lines[::2]
        both = frozenset({"default", "other"})
        assert [line.time_ns for line in _read(store, slot, projects=both)] == sorted(
            [line.time_ns for line in lines] + [lines[0].time_ns]
        )
        assert _read(store, slot, projects=both, limit=2, descending=True) == lines[:3:-1]

    def test_the_log_of_a_node_is_no_job_s(self, store: Store, slot: Slot) -> None:
        store.logs.append([system_line(slot, 0, "system", job=slot.job)], FOREVER)
        assert store.logs.read(LogSelector(project="default", job=slot.job), BUDGET).lines == []
        store.delete_job(compute_job_key("default", slot.job))
        assert len(_read(store, slot)) == 1

    @settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
    @given(data=st.data())
    def test_any_search_finds_what_plain_python_finds(self, store: Store, data: st.DataObject) -> None:
        slot = Slot()
        texts = st.lists(st.sampled_from([*_PARTS, "-", ":", "  ", "\x00", "(", '"', "\n*"]), max_size=7).map(
            lambda parts: data.draw(st.sampled_from([" ", "", "-"])).join(parts)
        )
        lines = [
            system_line(
                slot,
                at,
                text,
                severity=data.draw(st.sampled_from([None, 0, 3, 4, 5, 7])),
                level=data.draw(st.sampled_from([None, *Level])),
                facility=data.draw(st.sampled_from(["kern", "user", "daemon"])),
                tag=data.draw(st.sampled_from(["", "sshd", "a b", "axb", "*", "100%", "100"])),
                stream=data.draw(st.sampled_from(["kernel", "file:/var/log/a_b.log", "file:/var/log/axb.log"])),
            )
            for at, text in enumerate(data.draw(st.lists(texts, max_size=20)))
        ]
        store.logs.append(lines, FOREVER)
        for _ in range(6):
            text, finds = data.draw(SEARCHES)
            found = _read(store, slot, query=parse_log_query(text))
            assert found == [line for line in lines if finds(line)], text

    def test_moments_of_a_search_are_as_long_as_they_are_written(self, store: Store, slot: Slot) -> None:
        second = slot.start // 1000
        lines = [system_line(slot, at, str(at)) for at in (0, 999_999, 1_000_000, 10**9 - 1, 10**9, 60 * 10**9)]
        store.logs.append(lines, FOREVER)
        for text, places in (
            (f"time:{second}", [0, 1, 2, 3]),
            (f"Time={slot.start}", [0, 1]),
            (f"time_ns:{lines[2].time_ns}", [2]),
            (f"time>{second}", [4, 5]),
            (f"time>={second}", [0, 1, 2, 3, 4, 5]),
            (f"time<{slot.start + 1}", [0, 1]),
            (f"time<={slot.start + 1}", [0, 1, 2]),
            (f"time!={second}", [4, 5]),
        ):
            assert _read(store, slot, query=parse_log_query(text)) == [lines[place] for place in places], text
