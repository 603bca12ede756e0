"""Tests of ``jobmeter scheduler kubernetes`` on recorded answers of a real API server; see recorded/README.md."""

import json
import threading
from collections.abc import Iterable, Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.support.waiting import wait_until
from tests.unit.collect.scheduler.kubernetes.replay import PATHS, Replay, recorded, replaying

from jobmeter.collect.scheduler.kubernetes import informer
from jobmeter.collect.scheduler.kubernetes.api import GoneError, HttpApi
from jobmeter.collect.scheduler.kubernetes.informer import Informer, ObjectChange
from jobmeter.collect.scheduler.kubernetes.kind import KIND
from jobmeter.collect.scheduler.kubernetes.kinds import KINDS
from jobmeter.collect.scheduler.kubernetes.objects import PodObject, Workload, parse_quantity
from jobmeter.collect.scheduler.kubernetes.source import KubernetesScheduler
from jobmeter.errors import ConfigurationError, UnavailableError
from jobmeter.model.record import JobRecord, ReplicaRecord

NOW = 1_795_375_300_000
BATCH = next(kind for kind in KINDS if kind.path == "apis/batch/v1/jobs")


class Together:
    """Jobs merged from their records, later ones over earlier ones."""

    def __init__(self) -> None:
        self.jobs: dict[str, JobRecord] = {}
        self.replicas: dict[tuple[str, str, int], ReplicaRecord] = {}

    def take(self, records: Iterable[JobRecord]) -> "Together":
        for record in records:
            self.jobs[record.job_id] = record
            for one in record.replicas:
                assert isinstance(one, ReplicaRecord)
                self.replicas[record.job_id, one.name, one.attempt] = one
        return self

    def attempts(self, job: str) -> list[tuple[Any, ...]]:
        found = [(key, one) for key, one in sorted(self.replicas.items()) if key[0] == job]
        return [(key[1], key[2], str(one.state), one.exit_code, one.reason) for key, one in found]


class Fed(Informer[Any]):
    """Feed whose changes a test sets."""

    def __init__(self, *changes: ObjectChange[Any]) -> None:
        self.changes = list(changes)
        self.problem = ""

    def start(self) -> None:
        pass

    def stop(self) -> None:
        pass

    def wait_ready(self) -> bool:
        return not self.problem

    def take(self) -> list[ObjectChange[Any]]:
        found, self.changes = self.changes, []
        return found


def pods() -> list[ObjectChange[PodObject]]:
    """Return the recorded events of pods."""
    events = [json.loads(line) for line in recorded("pods")]
    return [
        ObjectChange(event["object"]["metadata"]["uid"], msgspec.convert(event["object"], PodObject))
        for event in events
        if event["type"] in {"ADDED", "MODIFIED"}
    ]


def workloads(name: str = "jobs") -> list[ObjectChange[Workload]]:
    events = [json.loads(line) for line in recorded(name)]
    return [
        ObjectChange(event["object"]["metadata"]["uid"], msgspec.convert(event["object"], Workload))
        for event in events
        if event["type"] in {"ADDED", "MODIFIED"}
    ]


def pod(name: str, owner: tuple[str, str] | None = None, **labels: str) -> dict[str, Any]:
    owners = [{"kind": owner[0], "name": owner[1], "uid": f"uid-{owner[1]}", "controller": True}] if owner else []
    return {
        "metadata": {
            "name": name,
            "namespace": "ns",
            "uid": f"uid-{name}",
            "labels": labels,
            "ownerReferences": owners,
        },
        "spec": {"nodeName": "n1", "containers": [{"name": "main"}]},
        "status": {
            "phase": "Running",
            "containerStatuses": [{"name": "main", "state": {"running": {"startedAt": "2026-11-22T19:00:00Z"}}}],
        },
    }


def change(found: dict[str, Any]) -> ObjectChange[PodObject]:
    return ObjectChange(found["metadata"]["uid"], msgspec.convert(found, PodObject))


RECORDED = {
    "two": ("Succeeded", 2),
    "oom": ("Failed", 1),
    "exit3": ("Failed", 2),
    "again": ("Failed", 4),
    "long": ("Running", 1),
    "web": ("Running", 2),
    "solo": ("Succeeded", 1),
}


def complete(reported: Together) -> bool:
    """Return True if every recorded job is reported in its last state, with the recorded number of attempts in it."""
    found = {
        name: (str(job.state), sum(one[2] == str(job.state) for one in reported.attempts(name)))
        for name, job in reported.jobs.items()
    }
    return found == RECORDED


def test_recorded_jobs_are_reported_as_the_api_server_has_them(tmp_path: Path) -> None:
    replay = Replay({path: recorded(name) for path, name in PATHS.items()})
    with replaying(replay):
        (tmp_path / "kubeconfig").write_text(replay.kubeconfig)
        reported = Together()
        with closing(KIND.make("c", {"kubeconfig": str(tmp_path / "kubeconfig")}, tmp_path)) as scheduler:
            wait_until(lambda: complete(reported.take(scheduler.poll(NOW).jobs)), "all events")
    wait_until(lambda: not [one for one in threading.enumerate() if one.name.startswith("watch ")], "no thread is left")
    assert {name: job.type for name, job in reported.jobs.items() if job.type != "Job"} == {
        "web": "Deployment",
        "solo": "Pod",
    }
    assert reported.attempts("two") == [("worker-0", 0, "Succeeded", 0, ""), ("worker-1", 0, "Succeeded", 0, "")]
    assert reported.attempts("oom") == [("worker-0", 0, "Failed", 137, "OOMKilled")]
    assert reported.attempts("exit3") == [("worker-0", number, "Failed", 3, "Error") for number in range(2)]
    assert reported.attempts("again") == [("worker-0", number, "Failed", 5, "Error") for number in range(4)]
    assert reported.attempts("web") == [(f"worker-{number}", 0, "Running", None, "") for number in range(2)]
    oom = reported.jobs["oom"]
    assert (oom.exit_code, oom.workspace, oom.instance_type) == (137, "default", {"cpu": 0.2, "memory": 20 * 2**20})
    assert oom.error is not None
    assert oom.error.startswith("OOMKilled: worker-0: the kernel killed a process")
    assert "BackoffLimitExceeded" in oom.error
    assert oom.labels is not None
    assert oom.labels.items() >= {"namespace": "default", "requested.cpus": "0.2", "team": "t", "cluster": "c"}.items()
    assert isinstance(reported.replicas["oom", "worker-0", 0].end, int)
    # The server got one list and one watch request for each kind, with bookmarks.
    watches = [query for path, query in replay.asked if path == "/api/v1/pods" and "watch" in query]
    assert [query["allowWatchBookmarks"] for query in watches] == [["true"]]
    assert len([path for path, query in replay.asked if path == "/api/v1/pods" and "watch" not in query]) == 1


def test_a_version_that_is_too_old_makes_everything_be_listed_again(tmp_path: Path) -> None:
    lines = recorded("pods")
    replay = Replay({"/api/v1/pods": [*lines]}, gone=frozenset({"1"}))
    replay.lists = {"/api/v1/pods": [json.dumps(json.loads(lines[-1])["object"]).encode()]}
    with replaying(replay):
        (tmp_path / "kubeconfig").write_text(replay.kubeconfig)
        with closing(KIND.make("c", {"kubeconfig": str(tmp_path / "kubeconfig")}, None)) as scheduler:
            scheduler.poll(NOW)
            wait_until(lambda: [path for path, asked in replay.asked if "limit" in asked].count("/api/v1/pods") >= 2)


def test_an_api_server_that_refuses_is_reported_with_its_words(tmp_path: Path) -> None:
    scheduler = KubernetesScheduler("c", (feed := Fed()), [])
    feed.problem = "the API server at X answers 403"
    with pytest.raises(UnavailableError, match="403"):
        scheduler.poll(NOW)
    feed.problem = ""
    feed.changes = [change(pod("a"))]
    assert [job.job_id for job in scheduler.poll(NOW).jobs] == ["a"]
    assert scheduler.poll(NOW).jobs == []
    feed.problem = "away"
    with pytest.raises(UnavailableError, match="away"):
        scheduler.poll(NOW)


@pytest.mark.parametrize("options", [{"kubeconfig": "/nowhere"}, {"projects": "x"}])
def test_a_cluster_that_does_not_exist_is_an_error_of_the_configuration(options: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError):
        KIND.make("c", options, None)


def test_a_restart_goes_on_with_the_same_names_and_attempts(tmp_path: Path) -> None:
    everything = pods()
    sets = kind_of("replicasets")
    first = KubernetesScheduler(
        "c", Fed(*everything), [(BATCH, Fed(*workloads())), (sets, Fed(*workloads("replicasets")))], state=tmp_path
    )
    before = Together().take(first.poll(NOW).jobs)
    first.poll(NOW)
    last = {one.uid: one for one in everything}
    long = [one for one in last.values() if one.found and one.found.metadata.name.startswith("long")]
    second = KubernetesScheduler("c", Fed(*long), [(BATCH, Fed(*workloads()))], state=tmp_path)
    after = Together().take(second.poll(NOW).jobs)
    assert after.attempts("long") == before.attempts("long")
    # Jobs that the cluster no longer has, and whose end was not observed.
    assert str(after.jobs["web"].state) == "Unknown"
    assert after.attempts("web") == [("worker-0", 0, "Unknown", None, ""), ("worker-1", 0, "Unknown", None, "")]


def test_a_name_that_is_given_again_is_another_job(tmp_path: Path) -> None:
    one = pod("train")
    scheduler = KubernetesScheduler("c", (feed := Fed(change(one))), [], state=tmp_path)
    assert [job.job_id for job in scheduler.poll(NOW).jobs] == ["train"]
    other = pod("train")
    other["metadata"]["uid"] = "9f8e7d6c-other"
    feed.changes = [ObjectChange("uid-train", None), change(other)]
    jobs = {job.job_id: job for job in scheduler.poll(NOW).jobs}
    assert {name: (str(job.state), job.name) for name, job in jobs.items()} == {
        "train": ("Stopped", "train"),
        "train~9f8e7d6c": ("Running", "train"),
    }


def test_namespaces_become_projects_where_that_is_requested() -> None:
    scheduler = KubernetesScheduler("c", Fed(change(pod("a"))), [], by_namespace=True)
    assert [(job.project, job.workspace) for job in scheduler.poll(NOW).jobs] == [("ns", "ns")]
    scheduler = KubernetesScheduler("c", Fed(change(pod("a"))), [], namespaces=frozenset({"other"}))
    assert scheduler.poll(NOW).jobs == []


def owned(kind: str, name: str, above: tuple[str, str] | None = None, **status: Any) -> ObjectChange[Workload]:
    owners = [{"kind": above[0], "name": above[1], "uid": f"uid-{above[1]}", "controller": True}] if above else []
    metadata = {"name": name, "namespace": "ns", "uid": f"uid-{name}", "ownerReferences": owners}
    found = msgspec.convert({"kind": kind, "metadata": metadata, "status": status}, Workload)
    return ObjectChange(f"uid-{name}", found)


def kind_of(path: str) -> Any:
    return next(kind for kind in KINDS if path in kind.path)


CONDITION = {"status": "True", "lastTransitionTime": "2026-11-22T19:10:00Z"}


@pytest.mark.parametrize(
    ("path", "chain", "labels", "replica", "status", "state"),
    [
        (
            "pytorchjobs",
            [("PyTorchJob", "top")],
            {"training.kubeflow.org/replica-type": "Worker", "training.kubeflow.org/replica-index": "3"},
            "worker-3",
            {"conditions": [{"type": "Running", **CONDITION}]},
            "Running",
        ),
        (
            "v2beta1/mpijobs",
            [("Job", "top-launcher"), ("MPIJob", "top")],
            {"training.kubeflow.org/job-role": "launcher"},
            "launcher-0",
            {"conditions": [{"type": "Succeeded", **CONDITION}]},
            "Succeeded",
        ),
        (
            "jobsets",
            [("Job", "top-workers-1"), ("JobSet", "top")],
            {
                "jobset.sigs.k8s.io/replicatedjob-name": "workers",
                "jobset.sigs.k8s.io/job-index": "1",
                "batch.kubernetes.io/job-completion-index": "2",
            },
            "workers-1-2",
            {"conditions": [{"type": "Failed", "reason": "FailedJobs", **CONDITION}]},
            "Failed",
        ),
        (
            "rayjobs",
            [("RayCluster", "top-raycluster"), ("RayJob", "top")],
            {"ray.io/node-type": "worker", "ray.io/group": "gpu"},
            "gpu-0",
            {"jobStatus": "STOPPED", "endTime": "2026-11-22T19:10:00Z"},
            "Stopped",
        ),
        (
            "batch.volcano.sh",
            [("Job", "top")],
            {"volcano.sh/task-spec": "ps", "volcano.sh/task-index": "1"},
            "ps-1",
            {"state": {"phase": "Completed", "lastTransitionTime": "2026-11-22T19:10:00Z"}},
            "Succeeded",
        ),
        (
            "leaderworkersets",
            [("StatefulSet", "top-0"), ("LeaderWorkerSet", "top")],
            {"leaderworkerset.sigs.k8s.io/group-index": "0", "leaderworkerset.sigs.k8s.io/worker-index": "2"},
            "group-0-worker-2",
            {},
            "Running",
        ),
    ],
)
def test_a_chain_of_owners_is_one_job(
    path: str, chain: list[tuple[str, str]], labels: dict[str, str], replica: str, status: Any, state: str
) -> None:
    """The test follows each controller's documents, because the tests run none of the controllers."""
    middle = [(kind_of(f"/{one[0].lower()}s"), Fed(owned(*one, above=above))) for one, above in pairwise(chain)]
    top = owned(*chain[-1], **status)
    scheduler = KubernetesScheduler(
        "c", Fed(change(pod("p", chain[0], **labels))), [*middle, (kind_of(path), Fed(top))]
    )
    (job,) = scheduler.poll(NOW).jobs
    (found,) = job.replicas
    assert isinstance(found, ReplicaRecord)
    assert (job.job_id, job.type, str(job.state), found.name) == ("top", chain[-1][0], state, replica)
    assert (found.node, found.pod_id, found.pod) == ("n1", "uid-p", "p")


def test_a_pod_waits_a_little_for_an_owner_that_is_not_listed_yet() -> None:
    owners = Fed()
    scheduler = KubernetesScheduler("c", Fed(change(pod("p", ("Job", "top")))), [(BATCH, owners)])
    assert scheduler.poll(NOW).jobs == []
    owners.changes = [owned("Job", "top", ("JobSet", "all"))]
    assert [scheduler.poll(NOW).jobs for _ in range(2)] == [[], []]
    (job,) = scheduler.poll(NOW).jobs
    assert (job.job_id, job.type) == ("all", "JobSet")


def test_a_pod_that_comes_after_the_end_of_its_job_is_counted_on() -> None:
    jobs = Fed(owned("Job", "top", conditions=[{"type": "Failed", **CONDITION}]))
    feed = Fed(change(failed("a")))
    scheduler = KubernetesScheduler("c", feed, [(BATCH, jobs)])
    reported = Together().take(scheduler.poll(NOW).jobs)
    feed.changes = [change(failed("b"))]
    reported.take(scheduler.poll(NOW).jobs)
    assert reported.attempts("top") == [("worker-0", number, "Failed", 2, "Error") for number in range(2)]


def failed(name: str) -> dict[str, Any]:
    found = pod(name, ("Job", "top"))
    ended = {"exitCode": 2, "reason": "Error", "finishedAt": "2026-11-22T19:05:00Z"}
    status = {"phase": "Failed", "containerStatuses": [{"name": "main", "state": {"terminated": ended}}]}
    return {**found, "status": status}


def test_agents_can_count_runs_of_before_the_watch() -> None:
    found = pod("p")
    found["status"]["containerStatuses"][0]["restartCount"] = 5
    reported = Together().take(KubernetesScheduler("c", Fed(change(found)), []).poll(NOW).jobs)
    assert reported.attempts("p") == [("worker-0", 0, "Unknown", None, ""), ("worker-0", 5, "Running", None, "")]


def test_an_evicted_pod_says_why() -> None:
    gone = pod("p")
    gone["status"] = {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."}
    (job,) = KubernetesScheduler("c", Fed(change(gone)), []).poll(NOW).jobs
    assert (str(job.state), job.error) == ("Failed", "Evicted: worker-0: The node was low on resource: memory.")


def test_a_pod_that_is_missing_from_a_list_ended_unseen() -> None:
    scheduler = KubernetesScheduler("c", (feed := Fed(change(pod("p")))), [])
    scheduler.poll(NOW)
    feed.changes = [ObjectChange("", None, frozenset())]
    (job,) = scheduler.poll(NOW).jobs
    assert (str(job.state), job.end) == ("Unknown", None)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("500m", 0.5),
        ("2", 2),
        (3, 3),
        ("1.5Gi", 1.5 * 2**30),
        ("1e3", 1000),
        ("100k", 100_000),
        ("x", None),
        ("", None),
        ("-1", None),
        ("1e999", None),
        ("9Pi", None),
        ("8Pi", 2**53),
    ],
)
def test_quantities(text: str, number: float | None) -> None:
    found = parse_quantity(text)
    assert (None if found is None else float(found)) == number


class Numbered(HttpApi):
    """API server with many objects, and a watch that gives each of them again."""

    def __init__(self, count: int) -> None:
        self._items = [{"metadata": {"uid": f"u{number}", "resourceVersion": str(number)}} for number in range(count)]

    def read_page(self, path: str, token: str) -> bytes:
        return msgspec.json.encode({"items": self._items, "metadata": {"resourceVersion": "1"}})

    def watch(self, path: str, version: str) -> Iterator[bytes]:
        yield from (msgspec.json.encode({"type": "MODIFIED", "object": one}) for one in self._items)


def test_a_list_longer_than_the_queue_is_taken_whole_and_a_watch_waits_for_room(monkeypatch) -> None:
    monkeypatch.setattr(informer, "_MOST_CHANGES", 3)
    monkeypatch.setattr(informer, "_FULL_SECONDS", 0.001)
    watching = Informer(Numbered(20), "api/v1/pods", PodObject, optional=False)
    watching.start()
    try:
        assert watching.wait_ready()
        listed = watching.take()
        assert len([change for change in listed if change.found is not None]) >= 20
        assert [len(change.uids) for change in listed if change.uids is not None] == [20]
        some = [len(listed) - 21]

        def all_came() -> bool:
            some.append(len(watching.take()))
            return sum(some) >= 20

        wait_until(all_came, "the watch")
        assert max(some) <= 3
    finally:
        watching.stop()


class CutOff(Numbered):
    """API server that gives only the first page of its first three lists, and no version to watch from."""

    lists = 0

    def read_page(self, path: str, token: str) -> bytes:
        if token:
            raise UnavailableError("the continue token has expired")
        self.lists += 1
        metadata = {"resourceVersion": "1", **({"continue": "page-2"} if self.lists <= 3 else {})}
        return msgspec.json.encode({"items": self._items, "metadata": metadata})

    def watch(self, path: str, version: str) -> Iterator[bytes]:
        raise GoneError("the version is too old")


class Attempts(threading.Event):
    """Stop event that skips the waits and stops after six attempts; the feed changes in the first three alone."""

    count = 0

    def __init__(self, watching: Informer[PodObject]) -> None:
        super().__init__()
        self.watching = watching

    def wait(self, timeout: float | None = None) -> bool:
        self.count += 1
        assert self.count > 3 or self.watching.take() == []
        return self.count == 6


def test_incomplete_and_superseded_lists_are_discarded() -> None:
    watching = Informer(CutOff(5), "api/v1/pods", PodObject, optional=False)
    watching.stopping = Attempts(watching)
    # Complete lists follow the three incomplete ones, and the first two of these are never taken.
    watching.run()
    *listed, end = watching.take()
    assert [change.uid for change in listed] == ["u0", "u1", "u2", "u3", "u4"]
    assert end.uids == frozenset({"u0", "u1", "u2", "u3", "u4"})


def scheduled(pod: dict[str, Any], status: str = "True") -> dict[str, Any]:
    """Return the pod with a condition that says when the scheduler gave it a node."""
    condition = {"type": "PodScheduled", "status": status, "lastTransitionTime": "2026-11-22T18:50:00Z"}
    return {**pod, "status": {**pod["status"], "conditions": [condition]}}


def test_a_pod_that_gets_a_node_is_an_event_of_its_job_once() -> None:
    waiting = pod("train")
    feed = Fed(change(scheduled(waiting, "False")))
    scheduler = KubernetesScheduler("c", feed, [])
    assert scheduler.poll(NOW).events == []
    feed.changes = [change(scheduled(waiting))]
    found = scheduler.poll(NOW)
    (event,) = found.events
    assert [job.job_id for job in found.jobs] == [event.job]
    assert (event.reason, event.replica, event.attempt, event.node, event.cluster) == (
        "Scheduled",
        "worker-0",
        0,
        "n1",
        "c",
    )
    assert event.time == 1_795_373_400_000
    ended = scheduled(waiting)
    terminated = {"exitCode": 0, "startedAt": "2026-11-22T19:00:00Z", "finishedAt": "2026-11-22T19:10:00Z"}
    ended["status"] |= {
        "phase": "Succeeded",
        "containerStatuses": [{"name": "main", "state": {"terminated": terminated}}],
    }
    feed.changes = [change(ended)]
    later = scheduler.poll(NOW)
    assert later.events == []
    assert len(later.jobs) == 1
