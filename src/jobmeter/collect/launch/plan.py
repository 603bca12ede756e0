"""Plan of ``jobmeter run``: the job's id and name, its replicas, and their environments."""

import re
import secrets
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import PurePath

import msgspec

from jobmeter.collect.launch.tracking import RUN_CONTEXT, TRACKING_URI, run_tags
from jobmeter.collect.reports.settings import ProgramSettings
from jobmeter.model.time import Clock

_INTERPRETERS = re.compile(
    r"(python|pypy)[\d.]*|(ba|da|z|k|fi)?sh|torchrun|accelerate|deepspeed|node|perl|ruby|Rscript|julia"
)
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
KEY_VARIABLE = "JOBMETER_KEY"
SECRET_VARIABLES = frozenset({KEY_VARIABLE, "JOBMETER_OPENTSDB_KEY", "JOBMETER_REGISTRY", "JOBMETER_STORE"})
"""Variables of Jobmeter that may have a credential. The command does not get them."""
_ALPHABET = "abcdefghijkmnpqrstuvwxyz23456789"
_LONGEST_NAME = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchPlan:
    """Job that is to be started.

    ``attempt`` numbers the runs of a job id from 0. Later runs set the job's name only if it is ``named``. ``logs``:
    output is stored as log lines. ``pass_key``: the command gets ``JOBMETER_KEY``. ``lease_owner`` is the random name
    by which this run renews the job's lease. ``node`` is the machine. ``tracking``: MLflow logs to the job.
    ``programs`` are the places at which programs report.
    """

    job: str
    name: str
    kind: str
    command: Sequence[str]
    user: str
    replicas: int = 1
    attempt: int = 0
    named: bool = False
    logs: bool = True
    pass_key: bool = False
    lease_owner: str = ""
    node: str = ""
    tracking: bool = False
    programs: ProgramSettings = field(default_factory=ProgramSettings)

    @property
    def names(self) -> list[str]:
        """Names of the replicas, in the order of their ranks."""
        return [f"worker-{rank}" for rank in range(self.replicas)]


def name_job(command: Sequence[str]) -> str:
    """Return a name for the job, from the script or program of the command."""
    words = [PurePath(word).name for word in command]
    name = words[0]
    if _INTERPRETERS.fullmatch(name):
        rest = list(words[1:])
        if rest[:1] == ["-m"]:
            name = rest[1] if len(rest) > 1 else name
        elif rest and not rest[0].startswith("-"):
            name = PurePath(rest[0]).stem
    safe = _UNSAFE.sub("-", name).strip("-._")
    return safe[:_LONGEST_NAME] or "job"


def make_job_id(name: str, clock: Clock) -> str:
    """Return an id such as ``name-20261121-k3m9xq``, unique by six random characters. ``name`` may be any text."""
    day = datetime.fromtimestamp(clock.now_ms() / 1000, tz=UTC).strftime("%Y%m%d")
    safe = _UNSAFE.sub("-", name).strip("-._")[:_LONGEST_NAME] or "job"
    return f"{safe}-{day}-" + "".join(secrets.choice(_ALPHABET) for _ in range(6))


def make_environments(plan: LaunchPlan, base: Mapping[str, str]) -> list[dict[str, str]]:
    """Return the environment of each replica: the caller's without credentials, the job's tags, and ranks if several.

    If MLflow logs to a server, its runs get the job's tags.
    """
    closed = SECRET_VARIABLES - {KEY_VARIABLE} if plan.pass_key else SECRET_VARIABLES
    own = {name: value for name, value in base.items() if name not in closed}
    common = {**own, "JOBMETER_JOB_ID": plan.job, "JOBMETER_ATTEMPT": str(plan.attempt), "JOBMETER_MEASURED": "run"}
    if plan.replicas == 1:
        return [{**common, "JOBMETER_REPLICA": plan.names[0], **_run_context(plan, plan.names[0], own)}]
    common |= {
        "WORLD_SIZE": str(plan.replicas),
        "LOCAL_WORLD_SIZE": str(plan.replicas),
        "NODE_RANK": "0",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(_free_port()),
    }
    return [
        {
            **common,
            "JOBMETER_REPLICA": name,
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            **_run_context(plan, name, own),
        }
        for rank, name in enumerate(plan.names)
    ]


def _run_context(plan: LaunchPlan, replica: str, variables: Mapping[str, str]) -> dict[str, str]:
    if TRACKING_URI not in variables or RUN_CONTEXT in variables:
        return {}
    return {RUN_CONTEXT: msgspec.json.encode(run_tags(plan.job, replica, plan.attempt, plan.node)).decode()}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
