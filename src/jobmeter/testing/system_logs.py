"""The part of the store contract that is about system logs and searches; ``StoreTests`` inherits it."""

import re

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jobmeter.model.event import Level
from jobmeter.model.log import LogLine
from jobmeter.model.log_query import parse_log_query
from jobmeter.model.series import job_key
from jobmeter.store.base import LogSelector, Store
from jobmeter.testing.samples import BUDGET, FOREVER
from jobmeter.testing.slot import Slot

_WORDS = ("xid", "Xid", "oom", "79", "é", "ÉTÉ", "page", "fault", "a_b")
_FIELDS = {
    "severity": ["err", "3", "warning"],
    "facility": ["kern", "user"],
    "tag": ["sshd", '"a b"'],
    "level": ["error", "warn"],
}


def system_line(slot: Slot, at_ns: int, text: str, **parts: object) -> LogLine:
    """A line of the kernel log of the slot's own node, so many nanoseconds after its start."""
    values: dict[str, object] = {"facility": "kern", "stream": "kernel", "node": slot.job, **parts}
    return LogLine(time_ns=slot.start * 1_000_000 + at_ns, text=text, **values)  # type: ignore[arg-type]


def _read(store: Store, slot: Slot, **parts: object) -> list[LogLine]:
    values: dict[str, object] = {"node": slot.job, "projects": frozenset({"default"}), "limit": 1_000, **parts}
    return store.read_logs(LogSelector(**values), BUDGET).lines  # type: ignore[arg-type]


def _found(text: str, line: LogLine) -> bool:
    """What a query finds, by Python's own operators: an oracle that shares nothing with the product's parser."""

    def value(match: "re.Match[str]") -> str:
        if match[1]:
            return f" {_compared(match[1], match[2].strip(chr(34)), line)} "
        if match[3]:
            return f" {match[3].lower()} "
        sought, own = (
            " " + " ".join(re.split(r"[^0-9a-zé]+", part.lower())).strip() + " " for part in (match[4], line.text)
        )
        return f" {sought in own} "

    pattern = r'(\w+):("[^"]*"|[^\s()]+)|\b(AND|OR|NOT)\b|"?([^\s()"]+(?: [^\s()"]+)?(?=")|[^\s()"]+)"?'
    source = re.sub(pattern, value, text)
    source = re.sub(r"(True|False|\))\s+(?=True|False|not|\()", r"\1 and ", source)
    return bool(eval(source.strip()))  # noqa: S307 - made above of True, False, and, or, not and parentheses


def _compared(field: str, value: str, line: LogLine) -> bool:
    match field:
        case "severity":
            own = line.severity if line.severity is not None else {Level.ERROR: 3, Level.WARNING: 4}.get(line.level)  # type: ignore[arg-type]
            return own == {"err": 3, "3": 3, "warning": 4}[value]
        case "level":
            return line.level == {"error": Level.ERROR, "warn": Level.WARNING}[value]
        case "facility":
            return line.facility == value
        case _:
            return line.tag == value


_TERMS = st.one_of(
    st.sampled_from([word for word in _WORDS if "_" not in word]),
    st.sampled_from(['"page fault"', '"xid 79"', '"79 79"']),
    st.sampled_from([f"{name}:{value}" for name, values in _FIELDS.items() for value in values]),
)
QUERIES = st.recursive(
    _TERMS,
    lambda inner: st.one_of(
        st.builds("({} AND {})".format, inner, inner),
        st.builds("({} OR {})".format, inner, inner),
        st.builds("({} {})".format, inner, inner),
        st.builds("(NOT {})".format, inner),
    ),
    max_leaves=6,
)
"""Texts of queries, in parentheses, so that they mean the same to every reader."""


class SystemLogTests:
    """What every store does with the system logs of nodes, and with searches."""

    def test_system_lines_come_back_as_they_were_written(self, store: Store, slot: Slot) -> None:
        lines = [
            system_line(slot, 0, "NVRM: Xid (PCI:0000:3b:00): 79", severity=3, level=Level.ERROR),
            system_line(slot, 1, "Killed process 7", severity=0, job="j", replica="worker-0", tag="kernel"),
            system_line(slot, 2, "no severity", facility="local7", stream="file:/var/log/a b.log"),
        ]
        store.append_logs(lines, FOREVER)
        assert _read(store, slot) == lines
        assert _read(store, slot, descending=True) == lines[::-1]
        assert _read(store, slot, projects=frozenset({"other"})) == []
        assert _read(store, slot, projects=frozenset()) == []
        assert _read(store, slot, max_severity=0) == lines[1:2]

    def test_the_subject_of_a_line_is_no_part_of_its_identity(self, store: Store, slot: Slot) -> None:
        for job in ("", "j"):
            store.append_logs([system_line(slot, 0, "once", job=job)], FOREVER)
        assert [line.job for line in _read(store, slot)] == ["j"]

    def test_projects_that_use_one_name_for_a_node_stay_apart(self, store: Store, slot: Slot) -> None:
        lines = [system_line(slot, at, "same", project=("default", "other")[at % 2]) for at in range(6)]
        store.append_logs([*lines, system_line(slot, 0, "same", project="other")], FOREVER)
        assert _read(store, slot) == lines[::2]
        both = frozenset({"default", "other"})
        assert [line.time_ns for line in _read(store, slot, projects=both)] == sorted(
            [line.time_ns for line in lines] + [lines[0].time_ns]
        )
        assert _read(store, slot, projects=both, limit=2, descending=True) == lines[:3:-1]

    def test_the_log_of_a_node_is_no_job_s(self, store: Store, slot: Slot) -> None:
        store.append_logs([system_line(slot, 0, "system", job=slot.job)], FOREVER)
        assert store.read_logs(LogSelector(project="default", job=slot.job), BUDGET).lines == []
        store.delete_job(job_key("default", slot.job))
        assert len(_read(store, slot)) == 1

    @settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
    @given(data=st.data())
    def test_any_query_finds_what_plain_python_finds(self, store: Store, data: st.DataObject) -> None:
        slot = Slot()
        texts = st.lists(st.sampled_from([*_WORDS, "-", ":", "  ", "\x00", "(", '"']), max_size=7).map(
            lambda parts: data.draw(st.sampled_from([" ", "", "-"])).join(parts)
        )
        lines = [
            system_line(
                slot,
                at,
                text,
                severity=data.draw(st.sampled_from([None, 0, 3, 4])),
                level=data.draw(st.sampled_from([None, Level.ERROR, Level.WARNING])),
                facility=data.draw(st.sampled_from(["kern", "user"])),
                tag=data.draw(st.sampled_from(["", "sshd", "a b"])),
            )
            for at, text in enumerate(data.draw(st.lists(texts, max_size=20)))
        ]
        store.append_logs(lines, FOREVER)
        for _ in range(6):
            text = data.draw(QUERIES)
            found = _read(store, slot, query=parse_log_query(text))
            assert found == [line for line in lines if _found(text, line)], text
