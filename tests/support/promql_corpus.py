"""Runs files of Prometheus' own PromQL tests (``promql/promqltest/testdata``), as far as they use floats.

``python -m tests.support.promql_corpus FOLDER`` prints the result of each file and every differing case.
"""

import math
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from jobmeter.errors import JobmeterError
from jobmeter.model.special import STALE
from jobmeter.promql.evaluate import EvaluatedQuery, evaluate
from jobmeter.promql.nodes import VectorMatch, VectorSelector
from jobmeter.promql.parse import parse
from jobmeter.promql.regex import match_texts
from jobmeter.promql.values import Scalar, String, Value, Vector
from jobmeter.promql.windows import WindowSamples

_UNITS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000, "y": 31_536_000_000}
_SERIES = re.compile(r"^\s*([a-zA-Z_:][\w:]*)?\s*(\{.*?\})?\s+(\S.*)$")
_LABEL = re.compile(
    r"""\s*("(?:[^"\\]|\\.)*"|[\w.:]+)\s*(?:=\s*("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|`[^`]*`))?\s*(?:,|$)"""
)
_SEQUENCE = re.compile(r"^(?P<start>[+-]?[^x]+?)(?:(?P<step>[+-](?:\d|\.|Inf|NaN)[^x]*))?x(?P<times>\d+)$")
EPSILON = 1e-6


def milliseconds(text: str) -> int:
    """Return a duration such as ``1m30s`` in milliseconds; a plain number means seconds."""
    found = re.findall(r"(-?[\d.]+)(ms|[smhdwy])", text)
    return round(sum(float(number) * _UNITS[unit] for number, unit in found)) if found else round(float(text) * 1000)


def number(text: str) -> float:
    """Parse a number of the corpus."""
    if text == "stale":
        return float(np.array([STALE], np.int64).view(np.float64)[0])
    if text.lower().lstrip("+-").startswith("0x"):
        return float(int(text, 16))
    return float(text)


def sequence(text: str) -> list[float | None] | None:
    """Return the values of a row, with None for a gap. Return None for a row with native histograms."""
    if "{{" in text:
        return None
    values: list[float | None] = []
    for part in text.split():
        if part.startswith("_"):
            values += [None] * (int(part[2:]) if part.startswith("_x") else 1)
            continue
        found = _SEQUENCE.match(part)
        if found is None:
            values.append(number(part))
            continue
        start = number(found["start"])
        step = number(found["step"]) if found["step"] else 0.0
        values += [start + step * at for at in range(int(found["times"]) + 1)]
    return values


def labels_of(name: str | None, text: str | None) -> tuple[tuple[str, str], ...]:
    """Parse the labels of ``name{...}``."""
    pairs = {"__name__": name} if name else {}
    for key, value in _LABEL.findall((text or "{}")[1:-1]):
        if not value:
            pairs["__name__"] = key.strip('"')
        else:
            inner = value[1:-1] if value[0] == "`" else value[1:-1].encode().decode("unicode_escape")
            pairs[key.strip('"')] = inner
    return tuple(sorted((key, value) for key, value in pairs.items() if value))


@dataclass
class Series:
    """Series of a test, in memory."""

    times: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)


class Memory:
    """Reader of the samples of a test."""

    def __init__(self) -> None:
        self.series: dict[tuple[tuple[str, str], ...], Series] = {}
        self.histograms: set[tuple[tuple[str, str], ...]] = set()
        self.converts = False
        """True if classic histograms also count as native ones."""

    def copied(self) -> "Memory":
        """Return a copy of the series for further additions."""
        copy = Memory()
        copy.series.update({key: Series(list(one.times), list(one.values)) for key, one in self.series.items()})
        copy.histograms |= self.histograms
        copy.converts = self.converts
        return copy

    def read(self, selector: VectorSelector, start_ms: int, end_ms: int) -> WindowSamples:
        """Return the samples that a selector matches, in the order of labels."""
        names = sorted(self.series)
        chosen = np.zeros(len(names), bool)
        for alternative in selector.alternatives:
            all_of = np.ones(len(names), bool)
            for one in alternative:
                texts = [dict(labels).get(one.label, "") for labels in names]
                if one.match in (VectorMatch.EQUAL, VectorMatch.NOT_EQUAL):
                    found = np.array([text == one.value for text in texts], bool)
                else:
                    found = match_texts(one.value, texts)
                all_of &= found if one.match in (VectorMatch.EQUAL, VectorMatch.REGEX) else ~found
            chosen |= all_of
        labels, times, values, starts = [], [], [], [0]
        for at in np.nonzero(chosen)[0].tolist():
            series = self.series[names[at]]
            inside = [k for k, time in enumerate(series.times) if start_ms < time <= end_ms]
            if inside:
                labels.append(names[at])
                times += [series.times[k] for k in inside]
                values += [series.values[k] for k in inside]
                starts.append(len(times))
        return WindowSamples(labels, np.array(times, np.int64), np.array(values, float), np.array(starts, np.int64))


@dataclass
class Case:
    """Question of the corpus and its expected answer."""

    file: str
    line: int
    query: str
    start_ms: int
    end_ms: int
    step_ms: int
    memory: Memory
    expected: dict[tuple[tuple[str, str], ...], list[float | None]] = field(default_factory=dict)
    scalar: float | None = None
    text: str | None = None
    fails: bool = False
    ordered: bool = False
    histograms: bool = False
    notes: list[str] = field(default_factory=list)

    @property
    def instant(self) -> bool:
        """True for a question about one moment."""
        return not self.step_ms


def cases(path: Path) -> Iterator[Case]:
    """Yield the questions of a file."""
    memory, step_ms = Memory(), 0
    case: Case | None = None
    loading = False
    for at, raw in enumerate(path.read_text().splitlines(), 1):
        line = raw.strip()
        word = line.split()[0] if line else ""
        if case and (word in ("", "clear", "load", "load_with_nhcb") or word.startswith("eval")):
            yield case
            case = None
        if not line or line.startswith("#"):
            continue
        if word == "clear":
            memory, loading = Memory(), False
        elif word in ("load", "load_with_nhcb"):
            memory, step_ms, loading = memory.copied(), milliseconds(line.split()[1]), True
            memory.converts |= word == "load_with_nhcb"
        elif word.startswith("eval"):
            case, loading = _question(path, at, line, memory), False
        elif loading:
            _load(memory, line, step_ms)
        elif case:
            _expect(case, line)
    if case:
        yield case


def _question(path: Path, at: int, line: str, memory: Memory) -> Case:
    instant = re.match(r"eval\w*\s+instant\s+at\s+(\S+)\s+(.*)", line)
    ranged = re.match(r"eval\w*\s+range\s+from\s+(\S+)\s+to\s+(\S+)\s+step\s+(\S+)\s+(.*)", line)
    if instant:
        moment = milliseconds(instant[1])
        case = Case(path.name, at, instant[2], moment, moment, 0, memory)
    else:
        assert ranged, line
        start, end, step = (milliseconds(ranged[one]) for one in (1, 2, 3))
        case = Case(path.name, at, ranged[4], start, end, step, memory)
    word = line.split(maxsplit=1)[0]
    case.fails, case.ordered = word == "eval_fail", word == "eval_ordered"
    return case


def _load(memory: Memory, line: str, step_ms: int) -> None:
    if "@st" in line:
        return
    found = _SERIES.match(line)
    assert found, line
    labels = labels_of(found[1], found[2])
    values = sequence(found[3])
    if values is None:
        memory.histograms.add(labels)
        return
    series = memory.series.setdefault(labels, Series())
    for at, value in enumerate(values):
        if value is not None:
            series.times.append(at * step_ms)
            series.values.append(value)


def _expect(case: Case, line: str) -> None:
    if line.startswith("expect"):
        if line.startswith("expect string"):
            case.text = line[len("expect string ") :].strip()[1:-1]
        elif line.startswith("expect fail"):
            case.fails = True
        elif line.startswith("expect ordered"):
            case.ordered = True
        case.notes.append(line)
        return
    if "{{" in line:
        case.histograms = True
        return
    if len(line.split()) == 1:
        case.scalar = number(line)
        return
    found = _SERIES.match(line)
    assert found, line
    values = sequence(found[3])
    assert values is not None
    case.expected[labels_of(found[1], found[2])] = values


def equal(one: float, other: float) -> bool:
    """Return True if two numbers are equal apart from rounding."""
    if math.isnan(one) or math.isnan(other):
        return math.isnan(one) and math.isnan(other)
    return one == other or math.isclose(one, other, rel_tol=EPSILON, abs_tol=1e-12)


def problem(case: Case) -> str:
    """Describe the difference between the answer and the expected one; empty without a difference."""
    times = np.arange(case.start_ms, case.end_ms + 1, case.step_ms or 1, dtype=np.int64)
    try:
        answer = evaluate(parse(case.query), case.memory, times, step_ms=case.step_ms, delayed_names=True)
    except JobmeterError as error:
        return "" if case.fails else f"failed: {error}"
    if case.fails:
        return "did not fail"
    return _notes(case, answer) or _values(case, answer.value, len(times))


def _notes(case: Case, answer: EvaluatedQuery) -> str:
    for kind, noted in (("warn", answer.warnings), ("info", answer.infos)):
        wanted = [note for note in case.notes if note.startswith(f"expect {kind}")]
        if wanted and not noted:
            return f"no {kind}"
        if noted and f"expect no_{kind}" in case.notes:
            return f"{kind}: {noted}"
    return ""


def _values(case: Case, value: Value, times: int) -> str:
    if isinstance(value, String):
        return "" if value.value == case.text else f"text {value.value!r}"
    if isinstance(value, Scalar):
        value = Vector([()], value.values[None, :], np.ones((1, times), bool))
    found = {
        labels: [float(one) if there else None for one, there in zip(row, present, strict=True)]
        for labels, row, present in zip(value.labels, value.values, value.present, strict=True)
    }
    rows = {(): [case.scalar]} if case.scalar is not None else case.expected
    expected = {labels: (values + [None] * (times - len(values)))[:times] for labels, values in rows.items()}
    expected = {labels: values for labels, values in expected.items() if any(one is not None for one in values)}
    if set(found) != set(expected):
        return f"series {sorted(found)} instead of {sorted(expected)}"
    wrong = [labels for labels, values in expected.items() if not all(map(_same, found[labels], values))]
    if wrong:
        return f"{dict(wrong[0])}: {found[wrong[0]][:12]} instead of {expected[wrong[0]][:12]}"
    ordered = not case.ordered or list(found) == list(expected)
    return "" if ordered else f"order {list(found)} instead of {list(expected)}"


def _same(one: float | None, other: float | None) -> bool:
    return one is other if one is None or other is None else equal(one, other)


def main() -> int:
    """Print how many cases of each file agree, and the other ones."""
    folder = Path(sys.argv[1])
    only = sys.argv[2] if len(sys.argv) > 2 else ""
    for path in sorted(folder.glob("*.test")):
        if only not in path.name:
            continue
        counts: Counter[str] = Counter()
        for case in cases(path):
            try:
                found = problem(case)
            except Exception as error:  # noqa: BLE001 - a defect is a line of the report
                found = f"{type(error).__name__}: {error}"
            touched = case.histograms or ((case.memory.histograms or case.memory.converts) and "--all" not in sys.argv)
            kind = "holds" if not found else ("histograms" if touched else "differs")
            counts[kind] += 1
            if kind == "differs" and (only or len(sys.argv) == 2):
                print(f"{path.name}:{case.line} {case.query}\n    {found[:300]}")
        print(path.name, dict(counts))
    return 0


if __name__ == "__main__":
    sys.exit(main())
