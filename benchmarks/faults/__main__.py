"""``python -m jobmeter.examples.faults``: precision and recall of the diagnosis on jobs whose fault is known."""

import argparse
import os
import secrets
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import click
import numpy as np

from benchmarks.faults.build import draw_shape
from benchmarks.faults.delays import detection_delay, quantiles
from benchmarks.faults.generated import FAULTS
from benchmarks.faults.healthy import CLEAN
from benchmarks.faults.real import SCRIPTS, THRESHOLDS, run
from benchmarks.faults.score import Trial, interval, scores
from jobmeter.diagnose.examine import examine
from jobmeter.diagnose.thresholds import Thresholds, load
from jobmeter.diagnose.wording import format_length
from jobmeter.examples.server import run_server

LEAST = 0.95
_CHUNK = 8
"""Jobs that a worker process takes at a time."""


class _Drawn(NamedTuple):
    """Job to draw. ``name`` and ``number`` are the rule and index of its fault, or the name of a healthy job and -1."""

    name: str
    number: int
    seed: np.random.SeedSequence
    timed: bool


def generated(seed: int, count: int, workers: int = 1, timed: int = 0) -> Iterator[Trial]:
    """Draw ``count`` jobs with each fault and as many healthy jobs, and yield the diagnosis of each.

    Shape, sampling, levels, place and wording are random. The delay of the finding is measured for the first ``timed``
    jobs of each fault.
    """
    faults = [(rule, number) for rule, makes in FAULTS.items() for number in range(len(makes))]
    names = list(CLEAN)
    jobs = [(*fault, at < timed) for at in range(count) for fault in faults]
    jobs += [(names[at % len(names)], -1, False) for at in range(len(faults) * count)]
    seeds = np.random.SeedSequence(seed).spawn(len(jobs))
    drawn = [_Drawn(name, number, own, is_timed) for (name, number, is_timed), own in zip(jobs, seeds, strict=True)]
    if workers == 1:
        yield from map(_trial, drawn)
        return
    with ProcessPoolExecutor(workers) as pool:
        yield from pool.map(_trial, drawn, chunksize=_CHUNK)


def _trial(drawn: _Drawn) -> Trial:
    thresholds = _thresholds()
    random = np.random.default_rng(drawn.seed)
    rule = drawn.name if drawn.number >= 0 else ""
    made = (FAULTS[rule][drawn.number] if rule else CLEAN[drawn.name])(random, draw_shape(random))
    delay = detection_delay(made, rule, thresholds) if drawn.timed else None
    return Trial(drawn.name, rule, examine(made.case(), thresholds), delay)


@lru_cache(maxsize=1)
def _thresholds() -> Thresholds:
    return load()


def real(say: Callable[[str], None]) -> Iterator[Trial]:
    """Run the real jobs with a temporary server on this machine, and yield the diagnosis of each."""
    with tempfile.TemporaryDirectory(prefix="jobmeter-") as folder:
        rules = Path(folder) / "rules.toml"
        rules.write_text(THRESHOLDS)
        os.environ["JOBMETER_RULES"] = str(rules)
        with run_server() as server:
            environment = {**os.environ, **server.environment}
            for script in SCRIPTS:
                findings = run(script, server, environment)
                if findings is None:
                    say(f"  {script.name:<34} left out: this machine lets no such control group or filesystem be made")
                    continue
                named = ", ".join(f"{one.rule} ({one.role})" for one in findings) or "nothing"
                say(f"  {script.name:<34} {named}")
                yield Trial(script.name, script.rule, findings)


def main() -> int:
    """Print the tables, and return 1 if precision or recall is below ``LEAST``, otherwise 0."""
    parser = argparse.ArgumentParser(prog="python -m jobmeter.examples.faults", description=__doc__)
    parser.add_argument("--seed", type=int, help="seed of the draw (default: a new one, which is printed)")
    parser.add_argument("--jobs", type=int, default=5, help="drawn jobs of each fault (default 5)")
    parser.add_argument("--delays", type=int, default=2, help="jobs of each fault that are watched (default 2)")
    parser.add_argument("--no-real", action="store_true", help="leave out the real jobs")
    given = parser.parse_args()
    seed = secrets.randbelow(2**32) if given.seed is None else given.seed
    workers = len(os.sched_getaffinity(0))
    trials = list(generated(seed, max(given.jobs, 1), workers, max(given.delays, 0)))
    click.echo(f"Drawn jobs with known truth, {len(trials)} of them, half of them healthy (--seed {seed}):")
    good = _table(trials)
    _print_delays(trials)
    if not given.no_real:
        click.echo("\nReal jobs on this machine, a minute of each threshold being a quarter of a second:")
        found = list(real(click.echo))
        good = _table(found) and good
        click.echo("\nAltogether:")
        good = _table([*trials, *found]) and good
    return 0 if good else 1


def _table(trials: list[Trial]) -> bool:
    """Print a row for each rule with 95 % intervals. Return True if precision and recall of all reach ``LEAST``."""
    table = scores(trials)
    click.echo(f"\n  {'rule':<22}{'right':>7}{'wrong':>7}{'missed':>8}{'precision':>20}{'recall':>20}")
    for rule, score in table.items():
        click.echo(
            f"  {rule or 'all':<22}{score.right:>7}{score.wrong:>7}{score.missed:>8}"
            f"{_share(score.right, score.wrong):>20}{_share(score.right, score.missed):>20}"
        )
    healthy = [trial for trial in trials if not trial.rule]
    if healthy:
        silent = sum(not trial.findings for trial in healthy)
        click.echo(f"  healthy jobs without a finding: {_share(silent, len(healthy) - silent)} of {len(healthy)}")
    for trial in trials:
        if trial.wrong or (trial.rule and not trial.hit):
            names = ", ".join(f"{one.rule} ({one.role})" for one in trial.findings)
            click.echo(f"  not as it should be: {trial.name} gave {names or 'nothing'}")
    whole = table[""]
    return whole.precision >= LEAST and whole.recall >= LEAST


def _print_delays(trials: list[Trial]) -> None:
    """Print the delays of findings that open while jobs run: median and 90th percentile for each rule."""
    delays: dict[str, list[int]] = {}
    for trial in trials:
        if trial.delay is not None:
            delays.setdefault(trial.rule, []).append(trial.delay)
    if not delays:
        return
    click.echo("\nFrom the beginning of a fault until its finding opens while the job runs:")
    click.echo(f"\n  {'rule':<22}{'jobs':>7}{'median':>10}{'90 %':>10}")
    everything = [one for own in delays.values() for one in own]
    for rule, own in [*sorted(delays.items()), ("all", everything)]:
        middle, late = quantiles(own)
        click.echo(f"  {rule:<22}{len(own):>7}{format_length(middle):>10}{format_length(late):>10}")


def _share(right: int, wrong: int) -> str:
    """Return a share with its 95 % interval by Wilson's formula, or a dash when both counts are 0."""
    total = right + wrong
    if not total:
        return "-"
    low, high = interval(right, total)
    return f"{right / total:.3f} ({low:.2f}-{high:.2f})"


if __name__ == "__main__":
    sys.exit(main())
