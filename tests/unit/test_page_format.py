"""Tests of numbers and durations on the page: the page's own source, run by Node.js."""

import json
import re
import runpy
import subprocess
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobmeter.model.catalog import METRICS

WEB = Path(__file__).parents[2] / "web"
PROGRAM = """
const { readFileSync } = require("node:fs");
const { transpileModule } = require("./node_modules/typescript");
const source = transpileModule(readFileSync("src/format.ts", "utf8"), { compilerOptions: { module: "commonjs" } });
const format = {};
new Function("exports", source.outputText)(format);
const lines = require("node:readline").createInterface({ input: process.stdin });
lines.on("line", (line) => {
  const [name, ...given] = JSON.parse(line);
  console.log(JSON.stringify(format[name](...given)));
});
"""


class Page:
    """Functions of the page's ``format.ts``."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def call(self, function: str, *given: Any) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([function, *given]) + "\n")
        self._process.stdin.flush()
        answer: str = json.loads(self._process.stdout.readline())
        return answer


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    builder = runpy.run_path(str(WEB / "build.py"))
    if not builder["has_tools"]():
        pytest.skip("Node.js or the page's packages are not installed: make page")
    node = builder["find_node"]()[0]
    with subprocess.Popen(
        [node, "-e", PROGRAM], cwd=WEB, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield Page(process)
        process.kill()


SECONDS = {"s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
MOST = {"s": 60, "m": 60, "h": 48, "d": 10**9}
"""Count of a unit from which the page uses the next larger one."""


def read_back(text: str) -> tuple[float, float]:
    """Return the seconds of a printed duration, and the size of its last digit."""
    parts = re.findall(r"(\d+)(\.\d)? ([smhd])", text)
    assert " ".join(f"{whole}{rest} {unit}" for whole, rest, unit in parts) == text
    assert int(parts[0][0]) < MOST[parts[0][2]], text
    for (_, _, larger), (whole, _, unit) in pairwise(parts):
        assert int(whole) * SECONDS[unit] < SECONDS[larger], text
    _, rest, unit = parts[-1]
    length = sum(float(whole + rest) * SECONDS[unit] for whole, rest, unit in parts)
    return length, SECONDS[unit] / (10 if rest else 1)


LENGTHS = st.integers(0, 10**5) | st.integers(0, 10**7) | st.integers(0, 10**10)


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "0.0 s"),
        (9_949, "9.9 s"),
        (9_960, "10 s"),
        (59_600, "1 m 00 s"),
        (119_400, "1 m 59 s"),
        (119_600, "2 m 00 s"),
        (3_599_700, "1 h 00 m"),
        (48 * 3_600_000 - 1, "2 d 0 h"),
        (None, "\u2013"),
    ],
)
def test_lengths_of_time(page, ms, text):
    assert page.call("formatDuration", ms) == text


@given(LENGTHS)
def test_a_length_of_time_reads_back_as_what_it_was_made_of(page, ms):
    read, digit = read_back(page.call("formatDuration", ms))
    assert abs(read - ms / 1000) <= digit / 2 + 1e-9


@given(LENGTHS, LENGTHS)
def test_a_longer_time_never_reads_shorter(page, one, other):
    shown = [read_back(page.call("formatDuration", ms))[0] for ms in sorted((one, other))]
    assert shown == sorted(shown)


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.375, "1", "37.5 %"),
        (4.2, "", "4.20"),
        (12, "{sample}", "12 samples"),
        (1.2 * 2**30, "By/s", "1.20 GiB/s"),
        (1_048_400, "By", "1.00 MiB"),
        (999_600, "Hz", "1.00 MHz"),
        (99.96, "W", "100 W"),
        (39_600, "W", "39.6 kW"),
        (None, "1", "\u2013"),
    ],
)
def test_quantities(page, value, unit, text):
    assert page.call("formatQuantity", value, unit) == text


@given(st.floats(0, 1e15), st.sampled_from(["By", "By/s", "Hz", "W"]))
def test_a_quantity_is_near_its_value_and_below_its_next_prefix(page, value, unit):
    shown = page.call("formatQuantity", value, unit)
    number, name = shown.split(" ", 1)
    factor = 1024 if unit.startswith("By") else 1000
    prefixes = ["", "K", "M", "G", "T", "P"]
    place = next((at for at, prefix in enumerate(prefixes) if at and name.upper().startswith(prefix)), 0)
    assert float(number) < factor or place == len(prefixes) - 1
    assert float(number) * factor**place == pytest.approx(value, rel=0.006, abs=0.006)


def test_only_the_unit_of_a_ratio_is_shown_in_percent(page):
    """Format 0.5 in each unit of the catalogue."""
    for metric in METRICS:
        assert ("%" in page.call("formatQuantity", 0.5, metric.answer_unit)) == (metric.answer_unit == "1")
