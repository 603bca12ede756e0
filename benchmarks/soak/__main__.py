"""``python -m benchmarks.soak``: simulated agents write over loopback for half an hour, beside live queries.

Prints each minute and at the end the accepted samples, the lag, the latencies of writes and queries, memory, disk and
parts. At the end it checks that every acknowledged sample is stored once. The exit status is 1 if the check fails.
"""

import argparse
import contextlib
import multiprocessing
import queue
import sys
import time
from collections.abc import Iterator
from multiprocessing.process import BaseProcess

from benchmarks.ours import Jobmeter
from benchmarks.processes import exit_on_sigterm
from benchmarks.soak import agents, readers
from benchmarks.soak.check import found
from benchmarks.soak.fleet import Fleet
from benchmarks.soak.tally import Reports, Tally
from benchmarks.soak.watch import engine, glance, heading, line

WRITERS = 2
HEAD_START = 3.0
"""Seconds that the client processes have to start."""


def main() -> None:
    """Run the soak test of the command line, and exit with 1 if its check fails."""
    options = _options()
    exit_on_sigterm()
    fleet = Fleet(options.nodes, options.gpus, options.metrics, options.interval)
    print(
        f"{fleet.nodes:,} nodes x {fleet.gpus} GPUs x {fleet.metrics} metrics every {fleet.interval:g} s: "
        f"{fleet.nodes * fleet.series:,} series, {fleet.rate:,.0f} samples/s; {options.questions:g} live questions "
        f"and a list of {len(fleet.jobs)} jobs a second, for {options.minutes:g} minutes",
        flush=True,
    )
    with Jobmeter() as ours:
        same = soak(ours, fleet, options.minutes, options.questions)
    sys.exit(0 if same else 1)


def soak(ours: Jobmeter, fleet: Fleet, minutes: float, questions: float) -> bool:
    """Run the clients, print figures each minute, and return True if every acknowledged sample is stored once.

    ``questions`` is the number of live queries a second.
    """
    begin = float(round(time.time() + HEAD_START))
    end = begin + minutes * 60
    whole, later = Tally(), Tally()
    with _clients(ours, fleet, questions, begin, end) as (processes, reports):
        time.sleep(max(0.0, begin - time.time()))
        start = before = glance(ours)
        settled, minute = start, 0
        print(heading(), flush=True)
        while any(process.is_alive() for process in processes):
            minute += 1
            tally = _gather(processes, reports, begin + minute * 60)
            now = glance(ours)
            print(line(str(minute), tally, before, now), flush=True)
            whole.add(tally)
            if minute > 1:
                later.add(tally)
            else:
                settled = now  # the first minute is left out of "later", because every series is new then
            before = now
        whole.add(_drained(reports))
        if later.times:
            print(line("later", later, settled, before))
        print(line("all", whole, start, before))
        print(engine(ours) or "the server's metrics tell nothing of parts and merges", flush=True)
    span = (int(begin * 1000), int(end * 1000))
    return _verdict(ours, fleet, whole, span)


def _verdict(ours: Jobmeter, fleet: Fleet, whole: Tally, span: tuple[int, int]) -> bool:
    taken = measured(fleet, span)
    stored = found(ours, fleet, *span, whole.accepted)
    print(
        f"measured {taken:,}, acknowledged {whole.accepted:,}, refused {whole.refused:,}, sent again "
        f"{whole.retries:,} after a refusal and {whole.broken:,} after a broken connection; "
        f"stored {stored.counted:,} (rows in the table: {stored.rows:,})"
    )
    # A sender repeats a body after a broken connection. Its samples may be acknowledged twice, but are stored once.
    same = stored.counted == min(whole.accepted, taken) and whole.accepted >= taken
    print("dropped = 0: every sample is stored once" if same else "NOT the same")
    return same


def measured(fleet: Fleet, span: tuple[int, int]) -> int:
    """Return the number of samples that all agents measure in ``span``, a start and an end in epoch ms."""
    total = 0
    for node in range(fleet.nodes):
        due = span[0] / 1000 + fleet.interval * node / fleet.nodes
        while due < span[1] / 1000:
            total += fleet.series
            due += fleet.interval
    return total


@contextlib.contextmanager
def _clients(
    ours: Jobmeter, fleet: Fleet, questions: float, begin: float, end: float
) -> Iterator[tuple[list[BaseProcess], Reports]]:
    spawn = multiprocessing.get_context("spawn")
    reports: Reports = spawn.Queue()
    processes: list[BaseProcess] = [
        spawn.Process(
            target=agents.run,
            args=(ours.written(), fleet, range(number, fleet.nodes, WRITERS), begin, end, reports),
            daemon=True,
        )
        for number in range(WRITERS)
    ]
    asked = (ours.port, dict(ours.headers), fleet, questions, end, reports)
    processes.append(spawn.Process(target=readers.run, args=asked, daemon=True))
    for process in processes:
        process.start()
    try:
        yield processes, reports
    finally:
        for process in processes:
            process.kill()
            process.join()


def _gather(processes: list[BaseProcess], reports: Reports, until: float) -> Tally:
    """Return the sum of the reports that arrive before ``until`` (epoch seconds) or before all processes end."""
    tally = Tally()
    while time.time() < until and any(process.is_alive() for process in processes):
        with contextlib.suppress(queue.Empty):
            tally.add(reports.get(timeout=0.5))
    return tally


def _drained(reports: Reports) -> Tally:
    tally = Tally()
    with contextlib.suppress(queue.Empty):
        while True:
            tally.add(reports.get(timeout=1))
    return tally


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__)
    add = parser.add_argument
    add("--minutes", type=float, default=30.0, help="how long (30)")
    add("--nodes", type=int, default=1_000, help="simulated agents (1000)")
    add("--gpus", type=int, default=8, help="GPUs of a node (8)")
    add("--metrics", type=int, default=40, help="metrics of a GPU (40)")
    add("--interval", type=float, default=10.0, help="seconds between two samples of a series (10)")
    add("--questions", type=float, default=10.0, help="live questions a second (10)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
