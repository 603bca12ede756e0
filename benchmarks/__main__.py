"""``python -m benchmarks``: Jobmeter and its peers with the same samples, queries and client, in one table."""

import argparse
import json
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks import install, results, show
from benchmarks.plan import PLANS, Plan
from benchmarks.processes import exit_on_sigterm
from benchmarks.row import Row, Table
from benchmarks.rows import chosen
from benchmarks.stages import STAGES

LATEST = Path(__file__).parent / "results" / "latest.json"


def main() -> None:
    """Run the stages of the chosen rows and print the table. With ``--check`` exit with 1 if a run did not pass."""
    options = _options()
    exit_on_sigterm()
    plan = replace(PLANS[options.scale], gentd26=options.gentd26)
    if options.log_lines is not None:
        plan = replace(plan, log_lines=options.log_lines)
    install.prepare()
    tables = list[Table]()
    for run in range(options.runs):
        print(f"run {run + 1} of {options.runs}, scale {plan.name}, {results.machine()}", file=sys.stderr, flush=True)
        tables.append(Table(options.only))
        for name in tables[-1].stages:
            _stage(plan, tables[-1], name)
            results.write(options.output, results.plain(tables, plan.name))  # an interrupted run leaves its results
    _show(tables, options)
    if options.check and not all(table.passed for table in tables):
        sys.exit(1)


def _stage(plan: Plan, table: Table, name: str) -> None:
    """Run a stage. An error voids the rows of the stage, and the other stages still run."""
    begin = time.monotonic()
    try:
        STAGES[name](plan, table)
    except (OSError, RuntimeError, ValueError, LookupError) as error:
        traceback.print_exc()
        table.fail(f"{name}.", f"{type(error).__name__}: {error}")
    print(f"{name}: {time.monotonic() - begin:.0f} s", file=sys.stderr, flush=True)


def _show(tables: Sequence[Table], options: argparse.Namespace) -> None:
    if options.json:
        print(json.dumps(results.plain(tables, options.scale), indent=1))
    else:
        print((show.markdown if options.markdown else show.text)(tables, results.versions()))


def _rows(only: str) -> list[Row]:
    try:
        return chosen([only])
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _count(text: str) -> int:
    count = int(text)
    if count < 1_000_003:
        raise argparse.ArgumentTypeError("fewer than 1,000,003 lines have no rare word")
    return count


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    add = parser.add_argument
    add("--only", action="extend", type=_rows, metavar="ROW", help="a row, or all that begin so; may be repeated")
    add("--runs", type=int, default=1, metavar="N", help="do everything N times, and tell how often each bar was met")
    add("--scale", choices=list(PLANS), default="quick", help="small only shows that everything works (quick)")
    add(
        "--full",
        action="store_const",
        dest="scale",
        const="full",
        help="the same as --scale full: longer rounds, the month three times",
    )
    add("--markdown", action="store_true", help="print the table as Markdown")
    add("--json", action="store_true", help="print JSON instead of the table")
    add(
        "--check",
        action="store_true",
        help="exit with 1 when a bar is not met, could not be measured, or a row is void",
    )
    add("--gentd26", type=Path, metavar="DIR", help="folder of that trace; its rows are left out without it")
    add("--log-lines", type=_count, metavar="N", help="lines of the rows about logs (10 million)")
    add("--output", type=Path, default=LATEST, metavar="FILE", help="where the JSON goes in any case")
    options = parser.parse_args()
    options.only = options.only or chosen(None)
    return options


if __name__ == "__main__":
    main()
