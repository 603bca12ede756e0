"""Parse the text of ``sacct``: every attempt of a job, with its steps and tasks.

The text has the same columns in all versions. 22.05's JSON gives an exit code of 0 for a job that failed with 3.
"""

from collections.abc import Iterable, Mapping, Sequence

from jobmeter.collect.scheduler.slurm.hostlist import expand
from jobmeter.collect.scheduler.slurm.slurm_job import REQUEUED, Attempt, SlurmExit, SlurmJob, SlurmStep
from jobmeter.collect.scheduler.slurm.tres import parse_tres
from jobmeter.collect.text import parse_whole_number

DELIMITER = "\x1f"
COLUMNS = (
    *("jobidraw", "jobid", "jobname", "user", "account", "partition", "qos", "state", "exitcode", "submit", "start"),
    *("end", "nodelist", "ntasks", "reqtres", "timelimitraw", "reason"),
)
ARGUMENTS = ("--noheader", "--duplicates", "--parsable2", f"--delimiter={DELIMITER}", f"--format={','.join(COLUMNS)}")
"""Arguments of ``sacct``. With ``SLURM_TIME_FORMAT=%s`` in the environment its times are epoch seconds."""

_UNNAMED = "allocation"
"""Placeholder of ``sacct`` while the database has no name: a job's row is written in parts."""

Row = Mapping[str, str]


def parse_accounting(text: str) -> dict[int, SlurmJob]:
    """Parse the jobs that ``sacct`` with ``ARGUMENTS`` printed, by number."""
    allocations: dict[int, list[tuple[Row, list[SlurmStep]]]] = {}
    for line in text.splitlines():
        values = line.split(DELIMITER)
        if len(values) != len(COLUMNS):
            continue  # a name with a line break in it
        row = dict(zip(COLUMNS, values, strict=True))
        number, _, step = row["jobidraw"].partition(".")
        if not number.isdigit():
            continue
        if not step:
            allocations.setdefault(int(number), []).append((row, []))
        elif step != "extern" and int(number) in allocations:
            allocations[int(number)][-1][1].append(_step(step, row))
    return {number: _facts(number, rows) for number, rows in allocations.items()}


def _facts(number: int, rows: Sequence[tuple[Row, list[SlurmStep]]]) -> SlurmJob:
    row = rows[-1][0]
    resources = parse_tres(row["reqtres"])
    return SlurmJob(
        number=number,
        label=row["jobid"],
        name="" if row["jobname"] == _UNNAMED else row["jobname"],
        user=row["user"],
        account=row["account"],
        partition=row["partition"],
        qos=row["qos"],
        reason="" if row["reason"] == "None" else row["reason"],
        cpus=resources.cpus,
        memory=resources.memory,
        gpu_count=resources.gpus,
        gpu_type=resources.gpu_type,
        requested=row["reqtres"],
        time_limit=parse_whole_number(row["timelimitraw"], 15),
        attempts=tuple(_select_latest_job([(row, _attempt(row, steps)) for row, steps in rows])),
    )


def _select_latest_job(rows: Sequence[tuple[Row, Attempt]]) -> Iterable[Attempt]:
    """Return the attempts of the latest job of a number. A cluster that lost its state reuses numbers."""
    first = len(rows) - 1
    while first and rows[first - 1][1].state in REQUEUED and _is_same_job(rows[first - 1][0], rows[first][0]):
        first -= 1
    attempts = [attempt for _, attempt in rows[first:]]
    # A run that was requeued before it began is not an attempt.
    return [attempt for attempt in attempts[:-1] if attempt.start is not None] + attempts[-1:]


def _is_same_job(one: Row, other: Row) -> bool:
    return one["user"] == other["user"] and one["jobname"] == other["jobname"]


def _attempt(row: Row, steps: Iterable[SlurmStep]) -> Attempt:
    state, _, by = row["state"].partition(" by ")
    nodes = expand(row["nodelist"])
    end = parse_whole_number(row["end"], 15)
    return Attempt(
        state=state.rstrip("+"),
        submit=parse_whole_number(row["submit"], 15),
        start=parse_whole_number(row["start"], 15) if nodes else None,
        end=end,
        exit=_exit(row["exitcode"]) if end is not None else None,
        nodes=nodes,
        by=by,
        steps=tuple(steps),
    )


def _step(name: str, row: Row) -> SlurmStep:
    return SlurmStep(
        id=name,
        tasks=parse_whole_number(row["ntasks"], 15) or 1,
        nodes=expand(row["nodelist"]),
        state=row["state"].partition(" by ")[0],
        exit=_exit(row["exitcode"]),
        end=parse_whole_number(row["end"], 15),
    )


def _exit(text: str) -> SlurmExit:
    code, _, signal = text.partition(":")
    return SlurmExit(parse_whole_number(code, 15) or 0, parse_whole_number(signal, 15) or 0)
