"""Tests of two namespaces whose objects name each other as owners: no pod becomes a replica of a foreign job."""

import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.collect.scheduler.kubernetes.test_scheduler import NOW, Fed, kind_of, owned, pod

from jobmeter.collect.scheduler.kubernetes.informer import ObjectChange
from jobmeter.collect.scheduler.kubernetes.objects import PodObject, Workload
from jobmeter.collect.scheduler.kubernetes.source import KubernetesScheduler
from jobmeter.model.record import JobRecord, ReplicaRecord

JOB, SET, JOB_SET = (kind_of(path) for path in ("batch/v1/jobs", "replicasets", "jobsets"))
KINDS = {"Job": JOB, "ReplicaSet": SET, "JobSet": JOB_SET}
VERSIONS = {"Job": "batch/v1", "ReplicaSet": "apps/v1", "JobSet": "jobset.x-k8s.io/v1alpha2", "Deployment": "apps/v1"}
STEP_MS = 10_000
SETTLED = 6
"""Polls after which the scheduler holds nothing back."""


def uid_of(number: int) -> str:
    return str(uuid.UUID(int=number + 1))


class Cluster:
    """Objects of an API server, sent to a scheduler in any order."""

    def __init__(self, state: Path, *, by_namespace: bool = False, namespaces: frozenset[str] = frozenset()) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.job_of: dict[str, set[tuple[str, str, str]]] = {}
        """By ``pod_id`` of a reported replica: (project, id, namespace) of each job that it was reported for."""
        self.records: dict[tuple[str, str], JobRecord] = {}
        self._options: dict[str, Any] = {"state": state, "by_namespace": by_namespace, "namespaces": namespaces}
        self._now = NOW
        self.restart()

    def restart(self) -> None:
        """Start a new watcher from the saved state of the last one; it lists all objects."""
        self._pods = Fed()
        self._owners = {name: Fed() for name in KINDS}
        owners = [(KINDS[name], feed) for name, feed in self._owners.items()]
        self._scheduler = KubernetesScheduler("c", self._pods, owners, **self._options)
        for name in ("Pod", *KINDS):
            self.list(name)

    def send(self, found: dict[str, Any]) -> None:
        """Send the creation or change of an object."""
        self.objects[found["metadata"]["uid"]] = found
        self._feed(found["kind"]).changes.append(_change(found))

    def delete(self, uid: str) -> None:
        found = self.objects.pop(uid)
        self._feed(found["kind"]).changes.append(ObjectChange(uid, None))

    def list(self, kind: str) -> None:
        """List everything of a kind again."""
        mine = [one for one in self.objects.values() if one["kind"] == kind]
        end: ObjectChange[Any] = ObjectChange("", None, frozenset(one["metadata"]["uid"] for one in mine))
        self._feed(kind).changes = [*map(_change, mine), end]

    def poll(self) -> None:
        self._now += STEP_MS
        for record in self._scheduler.poll(self._now).jobs:
            key = record.project or "", record.job_id
            # The record of a job that ended without a watcher has only its id.
            namespace = record.workspace or self.records[key].workspace or ""
            if record.workspace:
                self.records[key] = record
            for one in record.replicas:
                assert isinstance(one, ReplicaRecord)
                self.job_of.setdefault(one.pod_id, set()).add((*key, namespace))

    def _feed(self, kind: str) -> Fed:
        return self._pods if kind == "Pod" else self._owners[kind]


def _change(found: dict[str, Any]) -> ObjectChange[Any]:
    kind = PodObject if found["kind"] == "Pod" else Workload
    return ObjectChange(found["metadata"]["uid"], msgspec.convert(found, kind))


def reference(kind: str, name: str, uid: str) -> dict[str, Any]:
    return {"apiVersion": VERSIONS.get(kind, "v1"), "kind": kind, "name": name, "uid": uid, "controller": True}


def real_chain(objects: dict[str, dict[str, Any]], one: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the object and its owners by definition: each owner exists in the namespace, with its uid and kind."""
    chain = [one]
    while references := chain[-1]["metadata"]["ownerReferences"]:
        above = objects.get(references[0]["uid"])
        if above is None or above["kind"] != references[0]["kind"]:
            break
        if above["metadata"]["namespace"] != one["metadata"]["namespace"]:
            break
        chain.append(above)
    return chain


NAMESPACES = ("a", "b")
NAMES = ("train", "web", f"pod-{uid_of(3)}")
STATIC = ("0123456789abcdef" * 2, "fedcba9876543210" * 2)


@st.composite
def object_of(draw: st.DrawFn, number: int, count: int) -> dict[str, Any]:
    """Draw an object whose owner may be any other object, under any kind and in any namespace."""
    kind = draw(st.sampled_from(["Pod", "Pod", *KINDS]))
    uid, name = uid_of(number), draw(st.sampled_from(NAMES))
    found = pod(f"{name}-{number}" if kind == "Pod" else name)
    # An object owned by a later one could be part of a cycle.
    owner = draw(st.none() | st.integers(number + 1, count + 1))
    references = []
    if owner is not None:
        wanted = draw(st.sampled_from([*KINDS, "Deployment", "Pod", "Node"]))
        references = [reference(wanted, "n1" if wanted == "Node" else draw(st.sampled_from(NAMES)), uid_of(owner))]
    mirrored = draw(st.none() | st.sampled_from([*STATIC, *map(uid_of, range(count))]))
    if mirrored is not None and kind == "Pod":
        found["metadata"]["annotations"] = {"kubernetes.io/config.mirror": mirrored}
        found["metadata"]["name"] += draw(st.sampled_from(["", "-n1"]))
    found["metadata"] |= {"namespace": draw(st.sampled_from(NAMESPACES)), "uid": uid, "ownerReferences": references}
    return {**found, "kind": kind} if kind == "Pod" else {"kind": kind, "metadata": found["metadata"]}


@st.composite
def clusters(draw: st.DrawFn) -> list[dict[str, Any]]:
    count = draw(st.integers(2, 9))
    return draw(st.permutations([draw(object_of(number, count)) for number in range(count)]))


Step = Callable[[Cluster], None]
STEPS: list[Step] = [Cluster.poll, Cluster.poll, Cluster.poll, Cluster.restart]
STEPS += [partial(Cluster.list, kind=kind) for kind in ("Pod", *KINDS)]


@settings(max_examples=150, deadline=None)
@given(clusters(), st.lists(st.lists(st.sampled_from(STEPS), max_size=3), min_size=9, max_size=9), st.booleans())
def test_no_pod_is_in_a_job_of_another_namespace(
    objects: list[dict[str, Any]], steps: list[list[Step]], by_namespace: bool
) -> None:
    with TemporaryDirectory() as folder:
        cluster = Cluster(Path(folder), by_namespace=by_namespace)
        for found, between in zip(objects, steps, strict=False):
            cluster.send(found)
            for step in between:
                step(cluster)
        for _ in range(SETTLED):
            cluster.poll()
    pods = {uid: one for uid, one in cluster.objects.items() if one["kind"] == "Pod"}
    own: dict[tuple[str, str], set[str]] = {}
    for pod_id, jobs in cluster.job_of.items():
        for project, job, namespace in jobs:
            own.setdefault((project, job), set()).add(namespace)
            if pod_id in pods:
                assert pods[pod_id]["metadata"]["namespace"] == namespace, (pod_id, job)
            else:
                assert pod_id in STATIC
            if by_namespace:
                assert project == namespace
    assert all(len(namespaces) == 1 for namespaces in own.values()), own
    # An id by which agents report pods of unknown jobs belongs to no job.
    assert not any(job == f"pod-{uid}" for uid in map(uid_of, range(10)) for _, job in own)
    for uid, one in pods.items():
        chain = real_chain(cluster.objects, one)
        labels = [cluster.records[project, job].labels or {} for project, job, _ in cluster.job_of.get(uid, ())]
        # An owner that arrives long after its pod is too late; an owner of an unwatched kind is trusted.
        allowed = {two["metadata"]["uid"] for two in (chain if any(steps) else chain[-1:])}
        allowed |= {two["uid"] for two in chain[-1]["metadata"]["ownerReferences"] if two["kind"] == "Deployment"}
        assert {one["kubernetes.uid"] for one in labels} <= allowed


JOBS = {"victim": reference("Job", "victim", uid_of(0))}


def victim() -> dict[str, Any]:
    """Return a Job in namespace ``a``."""
    metadata = {"name": "victim", "namespace": "a", "uid": uid_of(0), "ownerReferences": [], "labels": {"team": "a"}}
    return {"kind": "Job", "metadata": metadata}


def pod_in(namespace: str, number: int, *owners: dict[str, Any], **annotations: str) -> dict[str, Any]:
    found = pod(f"p{number}")
    names = {f"kubernetes.io/config.{name}": value for name, value in annotations.items()}
    found["metadata"] |= {"namespace": namespace, "uid": uid_of(number), "ownerReferences": list(owners)}
    found["metadata"]["annotations"] = names
    return {**found, "kind": "Pod"}


@pytest.mark.parametrize("first", ["job", "pod", "pod long before"])
@pytest.mark.parametrize("kind", ["Job", "Deployment", "JobSet"])
def test_an_owner_in_another_namespace_is_none(tmp_path: Path, first: str, kind: str) -> None:
    cluster = Cluster(tmp_path)
    attacker = pod_in("b", 7, reference(kind, "victim", uid_of(0)))
    mine = pod_in("a", 8, JOBS["victim"])
    for one in [victim(), mine, attacker] if first == "job" else [attacker, victim(), mine]:
        cluster.send(one)
        for _ in range(SETTLED if first == "pod long before" else 1):
            cluster.poll()
    for _ in range(SETTLED):
        cluster.poll()
    ((_, job, namespace),) = cluster.job_of[uid_of(8)]
    assert (job.partition("~")[0], namespace) == ("victim", "a")
    assert (cluster.records["", job].labels or {}).items() >= {"team": "a", "namespace": "a"}.items()
    assert {one[2] for one in cluster.job_of[uid_of(7)]} == {"b"}
    assert (("", job, "b")) not in cluster.job_of[uid_of(7)]


def test_a_pod_whose_owner_does_not_exist_is_a_job_of_its_own(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    cluster.send(pod_in("b", 7, reference("Job", "nobody", uid_of(50))))
    cluster.poll()
    assert not cluster.job_of
    for _ in range(SETTLED):
        cluster.poll()
    assert cluster.job_of[uid_of(7)] == {("", "p7", "b")}


def test_many_deletions_in_one_poll_do_not_use_up_the_patience(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    for number in range(20, 30):
        cluster.send(pod_in("a", number))
    cluster.poll()
    cluster.send(pod_in("a", 7, JOBS["victim"]))
    for number in range(20, 30):
        cluster.delete(uid_of(number))
    cluster.poll()
    cluster.send(victim())
    cluster.poll()
    assert cluster.job_of[uid_of(7)] == {("", "victim", "a")}


def mirror(namespace: str, number: int, digest: str, node: str = "n1", **annotations: str) -> dict[str, Any]:
    """Return a static pod's mirror as a kubelet creates it."""
    found = pod_in(namespace, number, reference("Node", node, uid_of(90)), mirror=digest, hash=digest, source="file")
    found["metadata"]["annotations"] |= {f"kubernetes.io/config.{name}": value for name, value in annotations.items()}
    found["metadata"]["name"] = f"etcd{number}-n1"
    return found


def replicas(cluster: Cluster, *namespaces: str) -> list[ReplicaRecord]:
    """Return the replicas of the last record of each job, in all namespaces or in these."""
    found = [one for one in cluster.records.values() if not namespaces or one.workspace in namespaces]
    return [one for record in found for one in record.replicas if isinstance(one, ReplicaRecord)]


def pod_ids(cluster: Cluster, namespace: str) -> list[str]:
    return [one.pod_id for one in replicas(cluster, namespace)]


def test_a_mirror_has_the_uid_of_its_static_pod(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    cluster.send(mirror("kube-system", 7, STATIC[0]))
    cluster.poll()
    assert pod_ids(cluster, "kube-system") == [STATIC[0]]


@pytest.mark.parametrize(
    "forged",
    [
        mirror("b", 7, uid_of(1)),
        mirror("b", 7, STATIC[0], node="n2"),
        mirror("b", 7, STATIC[0], hash=STATIC[1]),
        mirror("b", 7, STATIC[0], source="api"),
        {**mirror("b", 7, STATIC[0]), "metadata": {**mirror("b", 7, STATIC[0])["metadata"], "name": "etcd"}},
        pod_in("b", 7, reference("Job", "mine", uid_of(60)), mirror=STATIC[0]),
        pod_in("b", 7, mirror=STATIC[0]),
    ],
    ids=["another pod", "node", "hash", "source", "name", "owner", "no owner"],
)
@pytest.mark.parametrize("first", [False, True])
def test_a_forged_mirror_has_its_own_uid(tmp_path: Path, forged: dict[str, Any], first: bool) -> None:
    cluster = Cluster(tmp_path)
    real = [pod_in("a", 1), mirror("a", 2, STATIC[0])]
    for one in [forged, *real] if first else [*real, forged]:
        cluster.send(one)
        cluster.poll()
    for _ in range(SETTLED):
        cluster.poll()
    assert pod_ids(cluster, "b") == [uid_of(7)]
    assert sorted(pod_ids(cluster, "a")) == sorted([uid_of(1), STATIC[0]])


@pytest.mark.parametrize("first", [False, True])
def test_a_static_pod_that_two_pods_claim_belongs_to_none(tmp_path: Path, first: bool) -> None:
    cluster = Cluster(tmp_path)
    both = [mirror("a", 1, STATIC[0]), mirror("b", 2, STATIC[0])]
    for one in reversed(both) if first else both:
        cluster.send(one)
        cluster.poll()
    cluster.poll()
    assert (pod_ids(cluster, "a"), pod_ids(cluster, "b")) == ([uid_of(1)], [uid_of(2)])
    # A kubelet deletes a mirror that it did not make.
    cluster.delete(uid_of(2))
    cluster.poll()
    assert pod_ids(cluster, "a") == [STATIC[0]]


def test_a_pod_of_an_owner_that_ended_during_a_restart_stays_in_its_job(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    cluster.send(victim())
    cluster.send(pod_in("a", 8, JOBS["victim"]))
    cluster.poll()
    cluster.poll()
    cluster.delete(uid_of(0))
    cluster.restart()
    for _ in range(SETTLED):
        cluster.poll()
    assert cluster.job_of[uid_of(8)] == {("", "victim", "a")}


def test_an_owner_is_checked_on_every_step_of_the_way(tmp_path: Path) -> None:
    """A ReplicaSet of the attacker's own namespace names the victim's Job as its owner."""
    cluster = Cluster(tmp_path)
    middle = msgspec.to_builtins(owned("ReplicaSet", "middle").found)
    middle["metadata"] |= {"namespace": "b", "uid": uid_of(5), "ownerReferences": [JOBS["victim"]]}
    for one in (victim(), middle, pod_in("b", 7, reference("ReplicaSet", "middle", uid_of(5)))):
        cluster.send(one)
    for _ in range(SETTLED):
        cluster.poll()
    assert cluster.job_of[uid_of(7)] == {("", "middle", "b")}
