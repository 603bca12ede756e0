"""Runs the tests with clusters of other software part by part, and prints omitted parts with the reason.

``make test-clusters`` runs all parts, and ``make test-clusters PARTS=slurm,flink`` only the named ones.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests.support.charts import needs_charts
from tests.support.flink import jvm, needs_flink
from tests.support.kubernetes import needs_kubernetes
from tests.support.machine import fetch_kernel, needs_machine
from tests.support.slurm import needs_slurm

ROOT = Path(__file__).resolve().parent.parent
_E2E = "tests/e2e"
_TAG = "localhost/jobmeter:0.1.0"


def nothing() -> None:
    """Accept every machine, for parts without requirements."""


def fetched_flink() -> None:
    """Download Flink and the vendor's SDK if missing, then check like ``needs_flink``."""
    try:
        needs_flink()
    except pytest.skip.Exception:
        if jvm() is None or "JOBMETER_FLINK" in os.environ:
            raise
        _make("flink")
        needs_flink()
    _make(".venvs/alibaba/.ready")


def _make(target: str) -> None:
    subprocess.run(["make", "--no-print-directory", target], cwd=ROOT, check=False)


def fetched_machine() -> None:
    """Download the kernel if missing, then check like ``needs_machine``."""
    fetch_kernel()
    needs_machine()


def needs_image() -> None:
    """Skip the calling test without an image or a program to run it."""
    if shutil.which("podman") is None:
        pytest.skip("podman is not installed (Debian's package podman)")
    if not os.environ.get("JOBMETER_IMAGE"):
        build = f"podman build -f deploy/Containerfile -t {_TAG} ."
        pytest.skip(f"JOBMETER_IMAGE names no image: {build}; JOBMETER_IMAGE={_TAG}")
    needs_charts()
    needs_kubernetes()


@dataclass(frozen=True, slots=True)
class Part:
    """Group of test files. ``needs`` skips with instructions if a requirement is missing."""

    name: str
    files: tuple[str, ...]
    needs: Callable[[], None]

    def lack(self) -> str:
        """Return the reason why the part cannot run here; empty if it can."""
        try:
            self.needs()
        except pytest.skip.Exception as skipped:
            return str(skipped)
        return ""


PARTS = (
    Part("simulated", (f"{_E2E}/test_simulated_job.py",), nothing),
    Part("slurm", tuple(f"{_E2E}/test_slurm{name}.py" for name in ("", "_ends", "_clusters")), needs_slurm),
    Part("flink", (f"{_E2E}/test_flink.py",), fetched_flink),
    Part("cgroup2", (f"{_E2E}/test_cgroup2.py",), fetched_machine),
    Part(
        "kubernetes", tuple(f"{_E2E}/test_kubernetes{name}.py" for name in ("", "_jobs", "_tenants")), needs_kubernetes
    ),
    Part("chart", (f"{_E2E}/test_chart.py",), needs_charts),
    Part("image", (f"{_E2E}/test_image.py",), needs_image),
)


def run(parts: Sequence[Part]) -> int:
    """Run the parts that can run, and print the omitted ones. Return 1 if a test failed."""
    messages: list[str] = []
    failed = False
    for part in parts:
        if lack := part.lack():
            messages.append(f"{part.name}: left out: {lack}")
            continue
        began = time.monotonic()
        environment = {**os.environ, "JOBMETER_CLUSTERS": "1"}
        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder, "report.xml")
            command = [sys.executable, "-m", "pytest", "-q", f"--junit-xml={report}", *part.files]
            status = subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode
            tests, reasons = outcome(report)
        failed |= status != 0
        verdict = "FAILED" if status else "passed" if tests else "left out"
        skipped = f", {len(reasons)} skipped: {'; '.join(dict.fromkeys(reasons))}" if reasons else ""
        messages.append(f"{part.name}: {verdict} ({tests} tests, {time.monotonic() - began:.0f} s{skipped})")
    print("\n" + "\n".join(messages))
    return 1 if failed else 0


def outcome(report: Path) -> tuple[int, list[str]]:
    """Return the number of tests of a run and the reasons of skipped tests; None if it ended before its report."""
    if not report.exists():
        return 0, []
    cases = list(ET.parse(report).iter("testcase"))
    skips = [skip for case in cases for skip in case.iter("skipped")]
    return len(cases) - len(skips), [skip.get("message", "") for skip in skips]


def chosen(names: str) -> list[Part]:
    """Return the parts with these comma-separated names, or all parts for an empty text. Raises ValueError."""
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    there = [part.name for part in PARTS]
    if unknown := [name for name in wanted if name not in there]:
        raise ValueError(f"there is no part {', '.join(unknown)}; there are {', '.join(there)}")
    return [part for part in PARTS if not wanted or part.name in wanted]


def main() -> int:
    """Run the parts of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", default="", help="those alone, with commas between them")
    try:
        return run(chosen(parser.parse_args().parts))
    except ValueError as error:
        parser.error(str(error))


if __name__ == "__main__":
    sys.exit(main())
