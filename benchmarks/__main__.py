"""``python -m benchmarks``: load everybody with the same samples, ask everybody the same, print a table and a JSON."""

import argparse
import sys
import time
from dataclasses import replace
from pathlib import Path

from benchmarks import results
from benchmarks.install import look
from benchmarks.plan import Plan, full, quick
from benchmarks.processes import leave_when_told
from benchmarks.row import Row, verdicts
from benchmarks.show import markdown, show
from benchmarks.stages import STAGES

LATEST = Path(__file__).parent / "results" / "latest.json"
TRACE = Path("../shared/data/gentd26")


def main() -> None:
    """Run what was asked for."""
    options = _options()
    leave_when_told()
    look(install=options.install)
    plan = replace(full() if options.full else quick(), gentd26=options.gentd26)
    runs = list[list[Row]]()
    for run in range(options.runs):
        if options.runs > 1:
            print(f"run {run + 1} of {options.runs}", flush=True)
        runs.append([])
        for name in options.only or STAGES:
            runs[-1] += _rows(plan, name)
            results.write(options.output, runs)  # after each part: a run that breaks off leaves what it has
    print(show(runs))
    if options.markdown:
        print(f"\n{markdown(runs, results.versions(), results.machine())}")
    if options.check and any(one.met < max(1, len(one.ratios)) for one in verdicts(runs)):
        sys.exit(1)


def _rows(plan: Plan, name: str) -> list[Row]:
    begin = time.monotonic()
    rows = STAGES[name](plan)
    print(f"{name}: {time.monotonic() - begin:.0f} s", file=sys.stderr, flush=True)
    return rows


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    add = parser.add_argument
    add("--full", action="store_true", help="longer rounds, 30 days of samples for the month, a start with 10^7")
    add("--runs", type=int, default=1, metavar="N", help="do everything N times, and tell how often each bar was met")
    add("--only", action="append", choices=list(STAGES), help="one part only; may be given several times")
    add("--markdown", action="store_true", help="print the table as Markdown too")
    add("--check", action="store_true", help="exit with 1 when a bar is not met")
    add("--install", action="store_true", help="install the peers that are missing with apt-get")
    add("--gentd26", type=Path, default=TRACE, metavar="DIR", help="folder of that trace; left out where it is absent")
    add("--output", type=Path, default=LATEST, metavar="FILE", help="where the JSON goes")
    return parser.parse_args()


if __name__ == "__main__":
    main()
