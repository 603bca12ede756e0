"""Tests of the chart and the plain manifests: rendering, a real API server, and minimal rights of the watcher."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from jobmeter.collect.scheduler.kubernetes.kinds import KINDS
from tests.support.charts import CHART, NAMESPACE, PLAIN, needs_charts, objects, rendered
from tests.support.kubernetes import Kubernetes, cluster, needs_kubernetes
from tests.support.processes import running

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("kubernetes"), pytest.mark.timeout(300)]

VALUES: dict[str, dict[str, Any]] = {
    "its own": {},
    "agents and a watcher of another server": {"server": {"enabled": False, "url": "https://jobmeter.example"}},
    "claims that are there": {
        "server": {"storage": {"existingClaim": "a"}, "environment": {"JOBMETER_WINDOW_BYTES": "1073741824"}},
        "watcher": {"storage": {"existingClaim": "b"}},
    },
    "everything said": {
        "cluster": "a",
        "image": {"repository": "registry.example/jobmeter", "tag": "1", "pullPolicy": "Always"},
        "imagePullSecrets": [{"name": "pull"}],
        "server": {"storage": {"className": "fast"}, "service": {"type": "NodePort"}},
        "watcher": {"namespaces": ["a", "b"], "userLabel": "owner", "projects": "namespace"},
        "agent": {"runtimeClassName": "nvidia", "nodeSelector": {"gpu": "yes"}},
    },
}
_PATHS = {
    "Namespace": "/api/v1/namespaces",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "ServiceAccount": f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts",
    "Service": f"/api/v1/namespaces/{NAMESPACE}/services",
    "PersistentVolumeClaim": f"/api/v1/namespaces/{NAMESPACE}/persistentvolumeclaims",
    "Deployment": f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments",
    "DaemonSet": f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets",
}


@pytest.fixture(scope="module")
def kubernetes() -> Iterator[Kubernetes]:
    needs_charts()
    needs_kubernetes("kube-apiserver", "kube-controller-manager", "etcd", "openssl")
    with cluster(with_node=False) as found:
        found.create(_PATHS["Namespace"], {"metadata": {"name": NAMESPACE}})
        yield found


def test_the_plain_manifest_is_the_chart() -> None:
    needs_charts()
    plain = PLAIN.read_text().partition("---\n")[2]
    assert plain == rendered().partition("---\n")[2], "run python -m tests.support.charts"


def test_every_value_is_in_the_schema() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())

    def check(values: dict[str, Any], described: dict[str, Any], where: str) -> None:
        if "$ref" in described:
            described = schema["definitions"]["storage"]
        for name, value in values.items():
            assert name in described["properties"], f"{where}.{name}"
            if isinstance(value, dict) and "properties" in described["properties"][name]:
                check(value, described["properties"][name], f"{where}.{name}")

    check(yaml.safe_load((CHART / "values.yaml").read_text()), schema, "")


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_the_api_server_takes_the_chart(kubernetes: Kubernetes, values: dict[str, Any]) -> None:
    found = objects(rendered(values))
    for one in found:
        # The server silently drops unknown fields, so compare its answer with the sent object.
        answer = kubernetes.create(f"{_PATHS[one['kind']]}?dryRun=All", one)
        _within(one, answer, one["kind"])
    kinds = [one["kind"] for one in found]
    assert kinds.count("DaemonSet") == 1
    assert kinds.count("Deployment") == (1 if values.get("server", {}).get("enabled") is False else 2)


def _within(sent: Any, came: Any, where: str) -> None:
    """Check that the answer contains everything sent, apart from empty values and other spellings of quantities."""
    if isinstance(sent, dict):
        for name, value in sent.items():
            if value not in ("", [], {}, False):
                assert name in came, f"{where}.{name}"
                _within(value, came[name], f"{where}.{name}")
    elif isinstance(sent, list):
        assert len(sent) == len(came), where
        for number, value in enumerate(sent):
            _within(value, came[number], f"{where}[{number}]")
    else:
        assert str(came) == str(sent), where


def test_a_field_that_is_none_would_be_noticed(kubernetes: Kubernetes) -> None:
    (agent,) = (one for one in objects(rendered()) if one["kind"] == "DaemonSet")
    agent["spec"]["template"]["spec"]["hostPid"] = True
    with pytest.raises(AssertionError, match="hostPid"):
        _within(agent, kubernetes.create(f"{_PATHS['DaemonSet']}?dryRun=All", agent), "agent")


def test_values_without_a_server_are_refused() -> None:
    needs_charts()
    with pytest.raises(ValueError, match=r"server\.url is needed"):
        rendered({"server": {"enabled": False}})


def test_the_watcher_may_do_what_it_does_and_nothing_else(kubernetes: Kubernetes, tmp_path: Path) -> None:
    for one in objects(rendered()):
        if one["kind"].startswith("ClusterRole"):
            kubernetes.create(_PATHS[one["kind"]], one)
    (role,) = (one for one in objects(rendered()) if one["kind"] == "ClusterRole")
    granted = {(group, name) for rule in role["rules"] for group in rule["apiGroups"] for name in rule["resources"]}
    parts = [kind.path.split("/") for kind in KINDS]
    assert granted == {("", "pods"), *((path[1], path[-1]) for path in parts)}
    assert {verb for rule in role["rules"] for verb in rule["verbs"]} == {"list", "watch"}
    config = tmp_path / "kubeconfig"
    kubernetes.write_kubeconfig(config, "jobmeter")
    with running(tmp_path / "data") as server:
        command = [sys.executable, "-m", "jobmeter", "scheduler", "kubernetes", "--cluster", "c", "--once"]
        options = ["--server", server.url, "--key", server.token, "--kubeconfig", str(config)]
        done = subprocess.run([*command, *options], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    for verb, resource, allowed in (("list", "pods", True), ("get", "secrets", False), ("delete", "pods", False)):
        question = {
            "user": f"system:serviceaccount:{NAMESPACE}:jobmeter-watcher",
            "resourceAttributes": {"verb": verb, "resource": resource},
        }
        answer = kubernetes.create("/apis/authorization.k8s.io/v1/subjectaccessreviews", {"spec": question})
        assert answer["status"]["allowed"] is allowed, (verb, resource)
