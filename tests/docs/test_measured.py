"""Tests of quoted benchmark numbers: the README and the capacity page agree with the last run."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RUN = (ROOT / "docs/performance.md").read_text(encoding="utf-8")
TOLERANCE = 0.15
"""Relative tolerance of a quoted number, which is the difference between two runs."""


def measured(row: str) -> float:
    """Return Jobmeter's number in a row of the last run."""
    (value,) = re.findall(rf"^\| {re.escape(row)} \| ([\d.,]+)", RUN, re.MULTILINE)
    return float(value.replace(",", ""))


@pytest.mark.parametrize(
    ("page", "sentence", "row", "factor"),
    [
        ("README.md", r"\*\*([\d.]+) ms\*\*", "live, never repeated, its samples arriving, p50, ms", 1),
        ("README.md", r"\*\*([\d.]+) % of a core\*\*", "jobmeter agent at 10 s: CPU, % of a core", 1),
        ("docs/how-to/capacity.md", r"uses ([\d.]+) % of a core", "jobmeter agent at 10 s: CPU, % of a core", 1),
        ("docs/how-to/capacity.md", r"and (\d+) MiB\. Its spool", "jobmeter agent at 10 s: resident memory, MiB", 1),
        (
            "docs/how-to/capacity.md",
            r"costs more: ([\d.]+) % of a core",
            "agent at 10 s, 8 GPUs, 500 processes (Prometheus: node_exporter): CPU, %",
            1,
        ),
        ("docs/how-to/capacity.md", r"needs ([\d.]+) % of a core", "agent at 1 s: CPU, %", 1),
        (
            "docs/how-to/capacity.md",
            r"Parquet \| ([\d,]+) samples",
            "jobmeter import FILE.parquet, end to end, samples/s",
            1,
        ),
        ("docs/how-to/capacity.md", r"log lines \| ([\d.]+) s", "the same: CPU for a million, merges included, s", 1),
        ("docs/how-to/capacity.md", r"at rest \| (\d+) MiB", "memory at rest, nothing stored, MiB", 1),
        ("docs/how-to/capacity.md", r"two decimals \| ([\d.]+)", "bytes a raw sample, random two-decimal values, B", 1),
        ("docs/how-to/capacity.md", r"its index \| (\d+)", "log lines: on disk, index included, bytes/line", 1),
        ("docs/how-to/capacity.md", r"128 GPUs \| ([\d.]+) ms", "day by GPU, uncached, p50, ms", 1),
        ("docs/how-to/capacity.md", r"30 days of 16 replicas \| ([\d.]+)", "month by replica, uncached, p50, ms", 1),
        ("docs/how-to/capacity.md", r"ms; ([\d,]+) answers", "the same, 16 connections, answers/s", 1),
        (
            "docs/how-to/capacity.md",
            r"100 \| ([\d.]+) ms",
            "findings of 100 running jobs: CPU for a job and round, us",
            1000,
        ),
        (
            "docs/how-to/capacity.md",
            r"1,000 \| ([\d.]+) ms",
            "findings of 1,000 running jobs: CPU for a job and round, us",
            1000,
        ),
    ],
)
def test_a_quoted_number_is_that_of_the_last_run(page, sentence, row, factor):
    (quoted,) = re.findall(sentence, (ROOT / page).read_text(encoding="utf-8"))
    assert float(quoted.replace(",", "")) * factor == pytest.approx(measured(row), rel=TOLERANCE)
