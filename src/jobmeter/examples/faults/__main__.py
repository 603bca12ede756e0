"""``python -m jobmeter.examples.faults``: how well the diagnosis names the causes of jobs whose fault is known."""

import argparse
import os
import secrets
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import numpy as np

from jobmeter.diagnose.examine import examine
from jobmeter.diagnose.thresholds import load
from jobmeter.examples.faults.build import draw_shape
from jobmeter.examples.faults.changes import Fault
from jobmeter.examples.faults.generated import FAULTS
from jobmeter.examples.faults.healthy import CLEAN
from jobmeter.examples.faults.real import SCRIPTS, THRESHOLDS, run
from jobmeter.examples.faults.score import Trial, interval, scores
from jobmeter.examples.server import own_server

LEAST = 0.95


def generated(seed: int, count: int) -> Iterator[Trial]:
    """Draw each fault so many times, and as many healthy jobs: shape, sampling, levels, place and wording vary."""
    thresholds = load()
    seeds = np.random.SeedSequence(seed)

    def trial(name: str, rule: str, make: Fault) -> Trial:
        random = np.random.default_rng(seeds.spawn(1)[0])
        return Trial(name, rule, examine(make(random, draw_shape(random)).case(), thresholds))

    faults = [(rule, make) for rule, makes in FAULTS.items() for make in makes]
    for _ in range(count):
        yield from (trial(rule, rule, make) for rule, make in faults)
    clean = list(CLEAN.items())
    for at in range(len(faults) * count):
        name, make = clean[at % len(clean)]
        yield trial(name, "", make)


def real(say: Callable[[str], None]) -> Iterator[Trial]:
    """The real jobs, on a server of their own on this machine."""
    with tempfile.TemporaryDirectory(prefix="jobmeter-") as folder:
        rules = Path(folder) / "rules.toml"
        rules.write_text(THRESHOLDS)
        os.environ["JOBMETER_RULES"] = str(rules)
        with own_server() as server:
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
    """Print the tables; 1 where precision or recall is too low."""
    parser = argparse.ArgumentParser(prog="python -m jobmeter.examples.faults", description=__doc__)
    parser.add_argument("--seed", type=int, help="seed of the draw (default: a new one, which is printed)")
    parser.add_argument("--jobs", type=int, default=5, help="drawn jobs of each fault (default 5)")
    parser.add_argument("--no-real", action="store_true", help="leave out the real jobs")
    given = parser.parse_args()
    seed = secrets.randbelow(2**32) if given.seed is None else given.seed
    trials = list(generated(seed, max(given.jobs, 1)))
    click.echo(f"Drawn jobs with known truth, {len(trials)} of them, half of them healthy (--seed {seed}):")
    good = _table(trials)
    if not given.no_real:
        click.echo("\nReal jobs on this machine, a minute of each threshold being a quarter of a second:")
        found = list(real(click.echo))
        good = _table(found) and good
        click.echo("\nAltogether:")
        good = _table([*trials, *found]) and good
    return 0 if good else 1


def _table(trials: list[Trial]) -> bool:
    """Print a row a rule, with 95 % intervals; True where precision and recall of all are high enough."""
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


def _share(right: int, wrong: int) -> str:
    """Return a share with its 95 % interval by Wilson's formula; a dash where nothing was counted."""
    total = right + wrong
    if not total:
        return "-"
    low, high = interval(right, total)
    return f"{right / total:.3f} ({low:.2f}-{high:.2f})"


if __name__ == "__main__":
    sys.exit(main())
