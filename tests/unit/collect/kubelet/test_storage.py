"""Tests of pod storage reported by the kubelet: a recorded answer, volumes and limits, and refusals."""

import http.server
import json
import ssl
import threading
from pathlib import Path

import pytest
from tests.support.certificates import make

from jobmeter.collect.base import NodeIdentity, Owner
from jobmeter.collect.discover.member import Member, MembershipSource
from jobmeter.collect.kubelet.storage import KubeletApi, KubeletSettings, PodStorageCollector
from jobmeter.errors import InvalidRequestError, UnavailableError
from jobmeter.model.pod import make_pod_job
from jobmeter.testing.collector import NOW_MS, CollectorContract

RECORDED = Path(__file__).parent / "recorded/summary-1.20.json"
BUSY = "22953f17-f025-4cb4-b6ea-a49df3eb5e6b"
UID = "0a1b2c3d-0001-0002-0003-00000000abcd"
TOKEN = "a.b.c"
GIB = 2**30


def member(uid=UID, replica="worker-0", attempt=0, **more):
    owner = Owner(make_pod_job(uid), replica, attempt)
    return Member(owner=owner, source=MembershipSource.KUBERNETES, pod_id=uid, **more)


def usage(used, capacity=100 * GIB, **more):
    return {"time": "2026-11-20T17:34:53Z", "usedBytes": used, "capacityBytes": capacity, **more}


def summary(uid=UID, **parts):
    return {
        "node": {"nodeName": "n1"},
        "pods": [{"podRef": {"name": "train-0", "namespace": "ml", "uid": uid}, **parts}],
    }


def pod(*limits, init=(), uid=UID):
    def container(limit, **more):
        return {"resources": {"limits": {"ephemeral-storage": limit} if limit else {}}, **more}

    spec = {"containers": [container(one) for one in limits]}
    spec["initContainers"] = [container(limit, restartPolicy=policy) for limit, policy in init]
    return {"kind": "PodList", "items": [{"metadata": {"uid": uid}, "spec": spec}]}


class Handler(http.server.BaseHTTPRequestHandler):
    server: "KubeletServer"

    def do_GET(self):
        status, body = self.server.answers.get(self.path, (404, b""))
        if self.server.secured and self.headers.get("Authorization") != f"Bearer {TOKEN}":
            status, body = 401, b"Unauthorized"
        self.server.tokens.append(self.headers.get("Authorization"))
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_args):
        pass


class KubeletServer(http.server.ThreadingHTTPServer):
    """HTTP interface of a kubelet; ``secured`` by TLS and a token."""

    def __init__(self, certificates=None):
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers, self.tokens, self.secured = {}, [], certificates is not None
        if certificates is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificates.certificate, certificates.key)
            self.socket = context.wrap_socket(self.socket, server_side=True)
        self.url = f"http{'s' if certificates else ''}://127.0.0.1:{self.server_address[1]}"
        self.thread = threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True)
        self.thread.start()

    def give(self, found, pods=None):
        body = found if isinstance(found, bytes) else json.dumps(found).encode()
        self.answers = {"/stats/summary": (200, body)}
        self.answers["/pods"] = (403, b"Forbidden") if pods is None else (200, json.dumps(pods).encode())

    def close(self):
        self.shutdown()
        self.server_close()
        self.thread.join()


@pytest.fixture(scope="module")
def running():
    server = KubeletServer()
    yield server
    server.close()


@pytest.fixture
def kubelet(running):
    running.answers = {}
    return running


def collected(kubelet, *members):
    api = KubeletApi(KubeletSettings(kubelet.url), "n1")
    found = PodStorageCollector(NodeIdentity("n1"), api, lambda: members or (member(),)).collect(NOW_MS)
    return {sample.series.metric.removeprefix("storage."): sample.value for sample in found}


class TestStorage(CollectorContract):
    @pytest.fixture
    def collector(self, kubelet):
        kubelet.give(summary(**{"ephemeral-storage": usage(5)}))
        api = KubeletApi(KubeletSettings(kubelet.url), "n1")
        return PodStorageCollector(NodeIdentity("n1"), api, lambda: [member()])


def test_a_recorded_answer(kubelet):
    """Kubelet 1.20 left out the sum of a pod without volumes: its writable layer has 8,192 bytes, its logs 4,096."""
    kubelet.give(RECORDED.read_bytes())
    assert collected(kubelet, member(BUSY)) == {"ephemeral.usage": 12_288, "ephemeral.limit": 270_553_174_016}


def test_the_sum_of_a_pod_and_its_cache(kubelet):
    volumes = [
        {"name": "model-cache", "pvcRef": {"name": "claim", "namespace": "ml"}, **usage(7 * GIB, 50 * GIB)},
        {"name": "data", "pvcRef": {"name": "cache.0", "namespace": "ml"}, **usage(1 * GIB, 10 * GIB)},
        {"name": "dataset", "pvcRef": {"name": "cached", "namespace": "ml"}, **usage(90 * GIB)},
        {"name": "cache", **usage(2 * GIB)},  # an emptyDir, which the sum includes
    ]
    containers = [{"rootfs": usage(1), "logs": usage(2)}]
    found = summary(**{"volume": volumes, "containers": containers, "ephemeral-storage": usage(3 * GIB)})
    kubelet.give(found, pod("4Gi", "", "2Gi"))
    assert collected(kubelet) == {
        "ephemeral.usage": 3 * GIB,
        "ephemeral.limit": 6 * GIB,
        "cache.usage": 8 * GIB,
        "cache.limit": 60 * GIB,
    }


@pytest.mark.parametrize(
    ("limits", "init", "limit"),
    [
        (["1Gi", "1Gi"], [], 2 * GIB),
        (["1Gi"], [("3Gi", None)], 3 * GIB),
        (["1Gi"], [("3Gi", "Always")], 4 * GIB),
        (["much"], [], 100 * GIB),
        ([], [("1Gi", None)], GIB),
    ],
)
def test_the_limit_of_a_pod_is_that_which_the_kubelet_enforces(kubelet, limits, init, limit):
    kubelet.give(summary(**{"ephemeral-storage": usage(1)}), pod(*limits, init=init))
    assert collected(kubelet)["ephemeral.limit"] == limit


@pytest.mark.parametrize(
    "parts",
    [
        {},
        {"containers": None},
        {"containers": [{"rootfs": {"capacityBytes": 5}}]},
        {"containers": [{"rootfs": usage(1), "logs": {}}]},
        {"ephemeral-storage": {}},
        {"volume": [{"name": "cache", "pvcRef": {"name": "cache"}}]},
    ],
)
def test_a_number_that_is_missing_is_absent(kubelet, parts):
    kubelet.give(summary(**parts))
    assert collected(kubelet) == {}


def test_a_pod_belongs_to_its_only_replica_in_the_latest_attempt(kubelet):
    kubelet.give(summary(**{"ephemeral-storage": usage(5)}))
    api = KubeletApi(KubeletSettings(kubelet.url), "n1")
    members = [member(attempt=1), member(attempt=3)]
    collector = PodStorageCollector(NodeIdentity("n1"), api, lambda: members)
    assert {sample.series.attempt for sample in collector.collect(NOW_MS)} == {3}
    members.append(member(replica="worker-1"))
    assert collector.collect(NOW_MS) == []


def test_a_node_without_pods_of_jobs_sends_the_kubelet_no_request(kubelet):
    kubelet.give(summary(**{"ephemeral-storage": usage(5)}))
    before = len(kubelet.tokens)
    assert collected(kubelet, member(measured=True)) == {}
    assert len(kubelet.tokens) == before


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"pods": [{"podRef": 5}]}', b"\xff"])
def test_an_answer_that_is_damaged(kubelet, body, caplog):
    kubelet.give(body)
    assert collected(kubelet) == {}
    assert "the storage of pods is not measured" in caplog.text


def test_a_kubelet_with_tls_is_verified_by_the_name_of_the_node_and_gets_a_token(tmp_path):
    made = make(tmp_path)
    server = KubeletServer(made)
    try:
        server.give({"pods": None})
        token = tmp_path / "token"
        token.write_text(f"{TOKEN}\n")
        settings = KubeletSettings(server.url, made.ca, token)
        assert KubeletApi(settings, "127.0.0.1").read_usage() == []
        with pytest.raises(UnavailableError, match="nodes/stats"):
            KubeletApi(KubeletSettings(server.url, made.ca, tmp_path / "none"), "127.0.0.1").read_usage()
        asked = len(server.tokens)
        with pytest.raises(UnavailableError, match="match"):
            KubeletApi(settings, "n2").read_usage()
        with pytest.raises(UnavailableError, match="certificate"):
            KubeletApi(KubeletSettings(server.url, None, token), "127.0.0.1").read_usage()
        assert len(server.tokens) == asked  # no other server gets the token
    finally:
        server.close()


def test_a_token_is_not_sent_in_the_clear(kubelet, tmp_path):
    (tmp_path / "token").write_text(TOKEN)
    kubelet.give({"pods": []})
    KubeletApi(KubeletSettings(kubelet.url, None, tmp_path / "token"), "n1").read_usage()
    assert kubelet.tokens[-1] is None


@pytest.mark.parametrize("url", ["", "127.0.0.1:10250", "ftp://n1", "https://", "https://u:p@n1", "https://n1/stats"])
def test_an_address_that_is_none_is_refused(url):
    with pytest.raises(InvalidRequestError):
        KubeletApi(KubeletSettings(url), "n1")
