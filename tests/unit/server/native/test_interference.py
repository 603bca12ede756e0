"""Tests that a restricted key gets the same bytes as if hidden data did not exist, for every operation of every API.

Two servers hold the same data, but the second lacks the data that a key may not see. The tests make each call of the
tables of operations to both with that key, about its own and about others' jobs, nodes, groups and projects. A count, a
sum, a newest member or a refusal that depends on hidden data makes the two answers differ.
"""

import asyncio
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

import pytest
from tests.support.asgi import HangupError, send
from tests.support.fakes import NOW
from tests.support.frames import records, samples
from tests.support.otlp import JSON as OTLP_JSON
from tests.support.serving import BASE, Serving, serving

from jobmeter.access.decide import writes
from jobmeter.access.keys import CreatedKey, create_key
from jobmeter.access.policy import encode_policies
from jobmeter.dialects.alibaba.foas.instances import compute_instance_id
from jobmeter.dialects.base import Dialect, Operation
from jobmeter.dialects.registry import list_dialects
from jobmeter.model.job import Job
from jobmeter.server.native.endpoint import Endpoint
from jobmeter.server.native.router import ENDPOINTS
from jobmeter.server.tasks import Tasks
from jobmeter.wire.mlflow.names import run_id

MINUTE, HOUR = 60_000, 3_600_000
MARK = "strictly-private"
"""Marker in every field of a record, so that an answer that contains any of them is detected."""


class Whose(NamedTuple):
    """Names of the job, node and so on of one owner."""

    name: str
    project: str

    @property
    def job(self) -> str:
        return f"{self.name}-job"

    @property
    def node(self) -> str:
        return f"{self.name}-node"

    @property
    def group(self) -> str:
        return f"{self.name}-group"

    @property
    def workspace(self) -> str:
        return f"{self.name}-workspace"

    @property
    def cluster(self) -> str:
        return f"{self.name}-cluster"

    @property
    def run(self) -> str:
        return run_id(self.job, "0" * 32)

    @property
    def trace(self) -> str:
        return self.name.encode().hex().ljust(32, "0")


MINE, THEIRS, AFAR = Whose("mine", "p"), Whose("theirs", "p"), Whose("afar", "q")
"""AFAR is in another project."""
EVERYBODY = (MINE, THEIRS, AFAR)

# Possible parts of a world.
JOBS, NODES = (
    {who: f"the job of {who.name}" for who in EVERYBODY},
    {who: f"the node of {who.name}" for who in EVERYBODY},
)
ONLY_MINE = frozenset({JOBS[MINE], NODES[MINE]})
EVERYTHING = frozenset({*JOBS.values(), *NODES.values()})


class World(NamedTuple):
    """Server, and the ids that it gave to its objects, by (owner, kind)."""

    server: Serving
    ids: Mapping[tuple[str, str], str]


def job_record(who: Whose, places: list[tuple[str, str]]) -> dict[str, Any]:
    mark = f"{MARK}-{who.name}"
    check = [{"CheckNumber": 1, "Phase": mark, "Status": "Succeeded"}]
    return {
        "job_id": who.job,
        "project": who.project,
        "name": mark,
        "type": "FlinkStream",
        "state": "Running",
        "user": mark,
        "workspace": who.workspace,
        "resource_group": who.group,
        "command": mark,
        "error": mark,
        "labels": {"team": mark},
        "created": NOW - 2 * HOUR,
        "start": NOW - HOUR,
        "limits": {"cpu": 8, "memory": 2**30},
        "instance_type": {"id": mark, "name": mark, "gpu_type": mark},
        "checkpoints": [{"id": mark}],
        "extra": {
            "pai-dlc": {"SanityCheckResults": [check]},
            "mlflow": {
                "experiments": {"0": True},
                "runs": {who.run: {"experiment": "0", "status": "RUNNING", "user": mark, "start": NOW - HOUR}},
            },
            "modelarts": {"algorithm": {"engine": {"engine_id": mark, "engine_name": mark}}},
        },
        "replicas": [
            {"name": f"worker-{at}", "node": node, "cluster": cluster, "devices": [f"gpu{at}"], "start": NOW - HOUR}
            for at, (node, cluster) in enumerate(places)
        ],
    }


def measured(who: Whose, places: list[tuple[str, str]], value: float) -> list[Any]:
    """Return a sample of a job's usage on its nodes for every minute of the last ten."""
    times = [NOW - at * MINUTE for at in range(10, 0, -1)]
    rows = []
    for at, (node, cluster) in enumerate(places):
        names = {"project": who.project, "job": who.job, "replica": f"worker-{at}", "node": node, "cluster": cluster}
        gauges = {"cpu.usage": 4, "memory.usage": 2**28, "app.loss": 1, "flink.fetched_delay": 9}
        rows += [({**names, "metric": name}, [(time, most * value) for time in times]) for name, most in gauges.items()]
        gpus = {"gpu.utilization": 1, "gpu.memory.usage": 2**32, "gpu.power": 300}
        rows += [
            ({**names, "metric": name, "device": f"gpu{at}"}, [(time, most * value) for time in times])
            for name, most in gpus.items()
        ]
    return rows


def measured_of_node(who: Whose, value: float) -> list[Any]:
    times = [NOW - at * MINUTE for at in range(10, 0, -1)]
    names = {"project": who.project, "node": who.node, "cluster": who.cluster}
    gauges = {"node.cpu.utilization": 1, "node.cpu.count": 64, "node.memory.total": 2**36}
    return [({**names, "metric": name}, [(time, most * value) for time in times]) for name, most in gauges.items()]


def world(folder: Any, parts: frozenset[str], *, shared: bool) -> World:
    """Make a server with those parts; ``shared``: the job of THEIRS also runs on the node of MINE."""
    server = serving(folder, rate_limits="*=1000000")
    ids: dict[tuple[str, str], str] = {}
    for who, value in zip(EVERYBODY, (0.25, 0.5, 0.75), strict=True):
        has_job, has_node = JOBS[who] in parts, NODES[who] in parts
        places = [(who.node, who.cluster)]
        if shared and who is THEIRS:
            places.append((MINE.node, MINE.cluster))
        admin = server.key("admin", who.project)
        if has_node:
            put_node(server, who, value, admin)
        if has_job:
            put_job(server, who, places, value, admin)
        if has_node and has_job:
            put_tasks(server, who, admin, ids)
        if has_job:
            put_silence(server, who, admin, ids)
        found = server.call("GET", f"/events?job={who.job}&project={who.project}").json()["events"]
        ids[who.name, "event"] = found[0]["id"] if found else "0" * 32
    services = server.application.services
    for _ in range(2):
        Tasks(services.executor, services.registry, services.thresholds, server.clock).round()
        services.alerting.round()
        server.clock.time_ms += 90_000
    server.clock.time_ms = NOW
    services.authenticator.forget()
    return World(server, ids)


def silence_of(who: Whose) -> dict[str, Any]:
    matchers = [{"name": "job_id", "value": who.job, "isRegex": False}]
    # The server lists silences by their ends.
    end_ms = NOW + HOUR + MINUTE * EVERYBODY.index(who)
    start, end = (datetime.fromtimestamp(at / 1000, UTC).isoformat() for at in (NOW - HOUR, end_ms))
    times = {"startsAt": start, "endsAt": end}
    return {"matchers": matchers, **times, "createdBy": f"{MARK}-{who.name}", "comment": f"{MARK}-{who.name}"}


def put_silence(server: Serving, who: Whose, admin: CreatedKey, ids: dict[tuple[str, str], str]) -> None:
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {admin.token}"}
    made = server.raw("POST", "/api/v2/silences", json.dumps(silence_of(who)).encode(), headers)
    assert made.status == 200, made.body
    ids[who.name, "silence"] = made.json()["silenceID"]


def put_node(server: Serving, who: Whose, value: float, admin: CreatedKey) -> None:
    info = {"cores": 64, "memory": 2**36, "devices": {"gpu0": who.name, "gpu1": who.name}}
    node = {"name": who.node, "cluster": who.cluster, "resource_group": who.group, "info": info}
    event = {"time": NOW - MINUTE, "node": who.node, "source": "node", "reason": "Xid", "level": "error"}
    body = {"nodes": [node], "events": [{**event, "message": f"{MARK}-{who.name}"}]}
    assert server.ingest(records(body) + samples(measured_of_node(who, value)), admin).status == 200
    lines = [{"text": f"{MARK} {who.name}", "time": NOW - MINUTE, "facility": "kern", "severity": "err"}]
    assert server.call("POST", f"/nodes/{who.node}/logs", {"lines": lines}, admin).status == 200


def put_job(server: Serving, who: Whose, places: list[tuple[str, str]], value: float, admin: CreatedKey) -> None:
    told = {"job": who.job, "replica": "worker-0", "reason": "Finding", "level": "error", "time": NOW - MINUTE}
    body = {
        "jobs": [job_record(who, places)],
        "events": [{**told, "message": f"straggler_rank (job {who.job}): {MARK}"}],
    }
    assert server.ingest(records(body) + samples(measured(who, places, value)), admin).status == 200
    lines = [{"text": f"{MARK} {who.name}", "time": NOW - MINUTE, "replica": "worker-0", "level": "error"}]
    assert server.call("POST", f"/jobs/{who.job}/logs", {"lines": lines}, admin).status == 200
    for node, _ in places:
        about = {"text": f"{MARK} {who.job} on {node}", "time": NOW - 2 * MINUTE, "facility": "kern", "job": who.job}
        if server.call("GET", f"/nodes?name={node}", key=admin).json()["nodes"]:
            assert server.call("POST", f"/nodes/{node}/logs", {"lines": [about]}, admin).status == 200
    tags = {"add": [f"{MARK}-{who.name}"], "author": MARK}
    note = {"text": f"{MARK}-{who.name}", "time": NOW - MINUTE}
    assert server.call("POST", f"/jobs/{who.job}/tags", tags, admin).status == 200
    assert server.call("POST", f"/jobs/{who.job}/notes", note, admin).status == 200
    start = (NOW - MINUTE) * 1_000_000
    span = {"traceId": who.trace, "spanId": who.trace[:16], "name": f"{MARK}-{who.name}", "kind": 1}
    span |= {"startTimeUnixNano": str(start), "endTimeUnixNano": str(start + 10**9)}
    named = [{"key": "jobmeter.job.id", "value": {"stringValue": who.job}}]
    sent = {"resourceSpans": [{"resource": {"attributes": named}, "scopeSpans": [{"spans": [span]}]}]}
    headers = {**OTLP_JSON, "Authorization": f"Bearer {admin.token}"}
    assert server.raw("POST", "/v1/traces", json.dumps(sent).encode(), headers).status == 200


def put_tasks(server: Serving, who: Whose, admin: CreatedKey, ids: dict[tuple[str, str], str]) -> None:
    lines = {"instance": f"{MARK}-{who.name}", "lines": ["CUDA error: out of memory"]}
    tasks = (
        {"type": "node", "nodes": [who.node]},
        {"type": "job", "job": who.job},
        {"type": "stacks", "job": who.job},
        {"type": "processes", "job": who.job},
        {"type": "logs", "logs": [lines]},
    )
    for at, task in enumerate(tasks, start=1):
        # The server lists tasks by the time of their creation.
        server.clock.time_ms = NOW + 10 * at + EVERYBODY.index(who)
        made = server.call("POST", "/tasks", task, admin)
        assert made.status == 200, made.body
        ids[who.name, "task"] = made.json()["id"]
    server.clock.time_ms = NOW


# Values of parameters by name: for one owner, or the same for all. A required parameter in neither table fails the
# test: give it a value here.

OF_OWNER: Mapping[str, Any] = {
    **dict.fromkeys(
        (
            *("JobId", "JobIds", "TrainingJobId", "training_job_id", "job", "jobName", "jobNames", "TargetId", "id"),
            *("ServiceName", "ServiceUid"),
        ),
        lambda who, _: who.job,
    ),
    **dict.fromkeys(
        ("job_name", "name", "tag", "DisplayName", "TrainingJobName", "Filter", "InstanceTypes"),
        lambda who, _: f"{MARK}-{who.name}",
    ),
    **dict.fromkeys(("PodId", "InstanceId"), lambda who, _: f"{who.job}-worker-0"),
    **dict.fromkeys(
        (
            *("ResourceGroupID", "ResourceGroupId", "ResourceGroupIDs", "ResourceGroupIds", "ResourceId"),
            *("QuotaId", "QuotaIds", "ResourceName", "resource_group"),
        ),
        lambda who, _: who.group,
    ),
    **dict.fromkeys(("ClusterId", "clusterId", "cluster"), lambda who, _: who.cluster),
    **dict.fromkeys(("NodeId", "node", "NodeIds"), lambda who, _: who.node),
    **dict.fromkeys(("projectName", "project_id", "training_project_id", "project"), lambda who, _: who.project),
    **dict.fromkeys(("DiagnosticId", "task"), lambda who, ids: ids.get((who.name, "task"), f"diag-{'0' * 24}")),
    **dict.fromkeys(("WorkspaceId", "workspace"), lambda who, _: who.workspace),
    "user": lambda who, _: f"{MARK}-{who.name}",
    "training_project": lambda who, _: {"name": who.project},
    "instanceId": lambda who, _: str(compute_instance_id(Job(id=who.job, project=who.project))),
    "event": lambda who, ids: ids[who.name, "event"],
    **dict.fromkeys(
        ("silenceID", "silence"),
        lambda who, ids: ids.get((who.name, "silence"), "00000000-0000-4000-8000-000000000000"),
    ),
    "trace": lambda who, _: who.trace,
    "run_id": lambda who, _: who.run,
    "uid": lambda who, _: f"{who.name}-uid",
    "Dimensions": lambda who, _: json.dumps([{"jobId": who.job}]),
    "m": lambda who, _: f"sum:cpu.usage{{job={who.job}}}",
    "match[]": lambda who, _: f'{{job_id="{who.job}"}}',
}
OF_ALL: Mapping[str, Any] = {
    "MetricType": "GpuCoreUsage",
    "MetricName": "JOB_GPU_DUTY_CYCLE",
    "Orderby": "Average",
    "SanityCheckNumber": "1",
    "TargetType": "job",
    "JobType": "PyTorchJob",
    "UserCommand": "train",
    "JobSpecs": [{"Type": "Worker", "PodCount": 1, "Image": "i"}],
    "PageNumber": "1",
    "PageSize": "10",
    "Namespace": "acs_pai_dlc",
    "ProjectName": "sink",
    "LogStore": "store",
    "FromTime": str((NOW - HOUR) // 1000),
    "ToTime": str(NOW // 1000),
    "jobType": "FLINK_STREAM",
    "expectState": "TERMINATED",
    "task_id": "worker-0",
    "action_type": "terminate",
    "report_type": "training-event",
    "type": "metrics",
    "start": str((NOW - HOUR) // 1000),
    "end": str(NOW // 1000),
    "metric": "cpu.usage,gpu.utilization",
    "metricJson": {
        "start": NOW - HOUR,
        "queries": [{"metric": "fetched_delay", "downsample": "60s-avg", "granularity": "60s"}],
    },
    "body": {},
    "query": 'count by (job_id, node, device, __name__) (last_over_time({__name__=~".+"}[2h]))',
    "step": "60",
    "label": "node",
    "experiment_id": "0",
    "experiment_ids": ["0"],
    "experiment_name": "vision",
    "metric_key": "loss",
    "value": "1",
    "timestamp": NOW,
    "Content-Type": "application/json",
    **dict.fromkeys(("link", "key", "note", "shipper"), "none-such"),
}
OF_OPERATION: Mapping[str, Mapping[str, Any]] = {
    "listJobs": {"states": "true", "sizes": "true", "tags": "true"},
    "GetNodeMetrics": {"MetricType": "GpuUsageRate"},
    "postSilences": {"body": silence_of(MINE)},
    "postAlerts": {"body": [{"labels": {"alertname": "Posted", "job_id": MINE.job}}]},
    "explainDifference": {"job": [THEIRS.job, MINE.job]},
    "listViewCalls": {"metric": "cpu.usage", "start": str(NOW - HOUR), "end": str(NOW)},
}
"""Values that an operation needs in addition, or in place of the others."""
NO_DATA = {"modelarts KeystoneListProjects"}
"""Operations whose answer has no stored data."""


class Asked(NamedTuple):
    """Call of an operation: whether it changes data, and whose data it is about."""

    operation: str
    changes: bool
    whose: str
    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes


def value_of(operation: str, name: str, who: Whose, ids: Mapping[tuple[str, str], str]) -> Any:
    if name in OF_OPERATION.get(operation, {}):
        return OF_OPERATION[operation][name]
    if name in OF_OWNER:
        return OF_OWNER[name](who, ids)
    assert name in OF_ALL, f"{operation} requires {name}: give it a value in the tables of this test"
    return OF_ALL[name]


def calls_of_dialect(dialect: Dialect, ids: Mapping[tuple[str, str], str]) -> Iterator[Asked]:
    for operation in dialect.operations:
        required = [one.name for one in operation.parameters if one.required]
        options = [one.name for one in operation.parameters if not one.required and one.name in OF_OWNER]
        for who in EVERYBODY:
            for option in [None, *options]:
                names = [*required, *([option] if option else [])]
                if option or any(name in OF_OWNER for name in required) or who is MINE:
                    yield dialect_call(dialect, operation, names, who, ids)


def dialect_call(
    dialect: Dialect, operation: Operation, names: list[str], who: Whose, ids: Mapping[tuple[str, str], str]
) -> Asked:
    where = {one.name: one.where for one in operation.parameters}
    values = {name: value_of(operation.name, name, who, ids) for name in names}
    path = operation.path
    for name in re.findall(r"{(\w+)}", path):
        path = path.replace(f"{{{name}}}", quote(str(values[name]), safe=""))
    text = {name: value if isinstance(value, str) else json.dumps(value) for name, value in values.items()}
    query = urlencode({name: text[name] for name in names if where[name] == "query"})
    in_body = {name: values[name] for name in names if where[name] == "body"}
    headers = {}
    version = getattr(dialect, "version", "")
    if version:
        headers = {"x-acs-version": version, "x-acs-action": operation.name}
    body = b""
    if in_body:
        form = operation.path == "/" or dialect.name == "foas"
        headers["content-type"] = "application/x-www-form-urlencoded" if form else "application/json"
        body = (urlencode({name: text[name] for name in in_body}) if form else json.dumps(in_body)).encode()
    method = operation.method.partition(",")[0]
    name = f"{dialect.name} {operation.name}"
    return Asked(name, writes(operation.action), who.name, method, f"{path}?{query}", headers, body)


def calls_of_endpoint(endpoint: Endpoint, ids: Mapping[tuple[str, str], str]) -> Iterator[Asked]:
    required = [one.name for one in endpoint.queries if one.required or one.name in OF_OPERATION.get(endpoint.name, {})]
    options = [one.name for one in endpoint.queries if not one.required and one.name in OF_OWNER]
    for who in EVERYBODY:
        for option in [None, *options]:
            names = [*required, *([option] if option else [])]
            if not (option or who is MINE or any(name in OF_OWNER for name in (*required, *endpoint.paths))):
                continue
            path = endpoint.path
            for name in endpoint.paths:
                path = path.replace(f"{{{name}}}", value_of(endpoint.name, name, who, ids))
            query = urlencode({name: value_of(endpoint.name, name, who, ids) for name in names}, doseq=True)
            body = b"" if endpoint.example is None else json.dumps(endpoint.example).encode()
            changes = endpoint.action is not None and writes(endpoint.action)
            name = f"native {endpoint.name}"
            yield Asked(name, changes, who.name, endpoint.method, f"{BASE}{path}?{query}", {}, body)


def every_call(ids: Mapping[tuple[str, str], str]) -> list[Asked]:
    """Return all calls: reading calls, then changing ones, deletions last."""
    found = [call for dialect in list_dialects() for call in calls_of_dialect(dialect, ids)]
    found += [call for endpoint in ENDPOINTS for call in calls_of_endpoint(endpoint, ids)]
    return sorted(found, key=lambda call: (call.changes, call.method == "DELETE"))


def answer(server: Serving, call: Asked, token: str) -> tuple[int, bytes]:
    """Return the status and the body; for an endless stream, the body is its first event."""
    target, headers = call.target, dict(call.headers)
    if token.startswith("jms_"):
        target = f"{target}&{urlencode({'Token': token})}"
    else:
        headers["Authorization"] = f"Bearer {token}"

    async def one_event(part: bytes) -> None:
        if part.startswith(b"data: "):
            raise HangupError

    reply = asyncio.run(send(server.application, call.method, target, call.body, headers, take=one_event))
    return reply.status, reply.body


_RANDOM = re.compile(
    rb"[0-9A-F]{8}-[0-9A-F]{4}-4[0-9A-F]{3}-[89AB][0-9A-F]{3}-[0-9A-F]{12}"  # ids of requests
    rb"|[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"  # ids of silences
    rb"|jm[a-z]*_[\w-]+|diag-[0-9a-f]+|(?:key|link|note)-[0-9a-f]+|JMAK\w+|\bdlc[0-9a-z]{13}\b|\b[0-9a-f]{32}\b|\bA[\w-]{100,}",
    re.ASCII,
)


def plain(reply: tuple[int, bytes]) -> tuple[int, bytes]:
    """Return an answer without its random parts."""
    return reply[0], _RANDOM.sub(b"*", reply[1])


def allow(*resources: str, deny: str = "") -> list[dict[str, Any]]:
    statements = [{"Effect": "Allow", "Action": "*", "Resource": [f"acs:*:*:*:{one}" for one in resources] or "*"}]
    return statements + [{"Effect": "Deny", "Action": "*", "Resource": f"acs:*:*:*:{deny}"}] * bool(deny)


class Restricted(NamedTuple):
    """Restricted caller: its policy, or another kind of credential, and the parts of the world that it may see."""

    sees: frozenset[str]
    policy: list[dict[str, Any]] | None = None
    credential: str = "key"
    shared: bool = True
    may_write: bool = False


OF_PROJECT = frozenset({JOBS[MINE], NODES[MINE], JOBS[THEIRS], NODES[THEIRS]})
CALLERS: Mapping[str, Restricted] = {
    "one resource group": Restricted(ONLY_MINE, allow(f"resourcegroup/{MINE.group}")),
    "one job": Restricted(ONLY_MINE, allow(f"job/{MINE.job}")),
    "one job and all nodes": Restricted(ONLY_MINE | {*NODES.values()}, allow(f"job/{MINE.job}", "node/*-node")),
    "one workspace": Restricted(ONLY_MINE, allow(f"workspace/{MINE.workspace}")),
    "one cluster": Restricted(ONLY_MINE, allow(f"cluster/{MINE.cluster}"), shared=False),
    "one node": Restricted(ONLY_MINE, allow(f"node/{MINE.node}")),
    "all but some jobs": Restricted(EVERYTHING - {JOBS[THEIRS]}, allow(deny=f"job/{THEIRS.name}*")),
    "all but a cluster": Restricted(
        EVERYTHING - {JOBS[THEIRS], NODES[THEIRS]}, allow(deny=f"cluster/{THEIRS.cluster}"), shared=False
    ),
    "a project by policy": Restricted(OF_PROJECT, allow("project/p")),
    "a project by key": Restricted(OF_PROJECT, may_write=True),
    "a link": Restricted(ONLY_MINE, credential="link"),
    "a share token": Restricted(ONLY_MINE, credential="share"),
}


def token_of(server: Serving, caller: Restricted) -> str:
    services = server.application.services
    if caller.credential != "key":
        path = f"/jobs/{MINE.job}/{'links' if caller.credential == 'link' else 'share'}"
        return str(server.call("POST", path, {}).json()["token"])
    if caller.policy is None:
        return server.key("admin", "p").token
    text = encode_policies([("own", json.dumps({"Version": "1", "Statement": caller.policy}).encode())])
    return create_key(services.registry, services.vault, server.clock, "own", "admin", None, text).token


Worlds = Callable[[frozenset[str], bool], World]


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worlds]:
    """Yield a function that returns the world of some parts, ``shared`` or not, and makes it only once."""
    made: dict[tuple[frozenset[str], bool], World] = {}

    def find(parts: frozenset[str], shared: bool) -> World:
        if (parts, shared) not in made:
            made[parts, shared] = world(tmp_path_factory.mktemp("world") / "data", parts, shared=shared)
        return made[parts, shared]

    yield find
    for one in made.values():
        one.server.application.close()


def compare(whole: World, without: World, tokens: Sequence[str]) -> tuple[set[str], list[str]]:
    """Return the operations that the caller may call, and the answers that differ."""
    opened, different = set[str](), list[str]()
    for at, (call, other) in enumerate(zip(every_call(whole.ids), every_call(without.ids), strict=True)):
        # Data made by a call is older than data made by the next call: the newest is the same on both servers.
        whole.server.clock.time_ms = without.server.clock.time_ms = NOW + at * call.changes
        found, expected = plain(answer(whole.server, call, tokens[0])), plain(answer(without.server, other, tokens[1]))
        opened |= {call.operation} if found[0] == 200 else set()
        if found != expected:
            different.append(f"{call.operation} {call.target}\n  {found}\n  instead of {expected}")
    return opened, different


@pytest.mark.parametrize("name", [name for name, caller in CALLERS.items() if not caller.may_write])
def test_an_answer_is_the_same_without_what_the_caller_may_not_see(worlds: Worlds, name: str) -> None:
    caller = CALLERS[name]
    whole, without = worlds(EVERYTHING, caller.shared), worlds(caller.sees, caller.shared)
    opened, different = compare(whole, without, [token_of(one.server, caller) for one in (whole, without)])
    assert not different, "\n".join(different)
    assert opened, "the caller may call something"


@pytest.mark.parametrize("name", [name for name, caller in CALLERS.items() if caller.may_write])
def test_so_it_is_for_a_caller_that_changes_what_is_there(tmp_path: Path, name: str) -> None:
    caller = CALLERS[name]
    made = [
        world(tmp_path / f"{at}", parts, shared=caller.shared) for at, parts in enumerate((EVERYTHING, caller.sees))
    ]
    try:
        opened, different = compare(made[0], made[1], [token_of(one.server, caller) for one in made])
    finally:
        for one in made:
            one.server.application.close()
    assert not different, "\n".join(different)
    assert {"native recordJobs", "pai-dlc CreateJob", "foas StartJob"} <= opened


def test_a_call_of_each_operation_that_reads_shows_others_to_an_administrator(worlds: Worlds) -> None:
    """The tests above prove something only if their calls can show data of others."""
    whole, without = worlds(EVERYTHING, True), worlds(ONLY_MINE, True)
    shown = set()
    for call, other in zip(every_call(whole.ids), every_call(without.ids), strict=True):
        if call.changes:
            break
        found = plain(answer(whole.server, call, whole.server.admin.token))
        assert found[0] < 500, call
        if found[0] == 200 and found != plain(answer(without.server, other, without.server.admin.token)):
            shown.add(call.operation)
    stored = {
        f"{dialect.name} {one.name}" for dialect in list_dialects() for one in dialect.operations if one.by_resource
    }
    stored |= {f"native {one.name}" for one in ENDPOINTS if one.by_resource}
    assert stored - shown == NO_DATA
