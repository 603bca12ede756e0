"""Runs ``python -m tests.storm TOPOLOGY --faults 100 --minutes 20 --seed 1``: see ``make storm``."""

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.storm.storm import BAD, Load, Plan, run_storm
from tests.storm.topology import TOPOLOGIES


def main() -> int:
    """Run a storm and print its table. Keep the folder with the logs after a failure."""
    parser = argparse.ArgumentParser(prog="python -m tests.storm", description=__doc__)
    parser.add_argument("topology", choices=sorted(TOPOLOGIES))
    parser.add_argument("--faults", type=int, default=100)
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--rate", type=float, default=Load.samples, help="samples a second")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="jobmeter-storm-"))
    plan = Plan(options.topology, options.seed, options.faults, options.minutes, load=Load(samples=options.rate))
    storm = run_storm(plan, folder)
    print(storm.describe())
    print(f"  logs: {folder}")
    return int(any(storm.report.counts[kind] for kind in BAD))


if __name__ == "__main__":
    sys.exit(main())
