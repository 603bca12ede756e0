"""Starts a real Kubernetes cluster of one node on 127.0.0.1: etcd, API server, controllers, containerd and kubelet.

No Debian package contains the API server and the kubelet; Debian's source package ``kubernetes`` builds them. They are
searched in the folder JOBMETER_KUBERNETES and on the path.
"""

import json
import os
import shutil
import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import Mapping
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.clusters import free_ports, running
from tests.support.waiting import wait_until

SERVERS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet")
PROGRAMS = ("etcd", "containerd", "ctr", "runc", "busybox", "openssl")
V1 = Path("/sys/fs/cgroup/memory").is_dir()
_TOKEN = "admintoken"
_PATH = os.pathsep.join((os.environ.get("JOBMETER_KUBERNETES", ""), os.environ.get("PATH", ""), "/usr/sbin"))


def needs_kubernetes(*names: str) -> None:
    """Skip the calling test if one of these programs, by default all programs of a cluster with a node, is missing."""
    missing = [name for name in names or (*SERVERS, *PROGRAMS) if shutil.which(name, path=_PATH) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} not found: build Debian's source of kubernetes, as {__name__} says")
    if os.geteuid():
        pytest.skip("a Kubernetes node is started by root alone")


class Kubernetes:
    """Cluster of one node. ``node`` is its name."""

    def __init__(self, folder: Path, *, with_node: bool) -> None:
        self.folder = folder
        self.node = f"k{os.getpid()}"
        self._with_node = with_node
        self._running: list[subprocess.Popen[bytes]] = []
        self._ports = free_ports(6)
        self.url = f"https://127.0.0.1:{self._ports[2]}"
        self.kubeconfig = folder / "kubeconfig"

    def start(self) -> None:
        for name in ("log", "certs", "kubelet", "cni", "pod-resources"):
            (self.folder / name).mkdir()
        self._start_api()
        if self._with_node:
            self._start_node()

    def _start_api(self) -> None:
        client, peer, secure, *_ = self._ports
        folder = self.folder
        _run("openssl", "genrsa", "-out", folder / "sa.key", "2048")
        _run("openssl", "rsa", "-in", folder / "sa.key", "-pubout", "-out", folder / "sa.pub")
        (folder / "tokens.csv").write_text(
            f'{_TOKEN},admin,1,"system:masters"\njobmeter,system:serviceaccount:jobmeter:jobmeter-watcher,2\n'
        )
        self.write_kubeconfig(self.kubeconfig, _TOKEN)
        etcd, peers = f"http://127.0.0.1:{client}", f"http://127.0.0.1:{peer}"
        self._daemon(
            "etcd",
            f"--data-dir={folder}/etcd",
            *(f"--{name}={etcd}" for name in ("listen-client-urls", "advertise-client-urls")),
            *(f"--{name}={peers}" for name in ("listen-peer-urls", "initial-advertise-peer-urls")),
            f"--initial-cluster=default={peers}",
            "--unsafe-no-fsync",
        )
        self._daemon(
            "kube-apiserver",
            f"--etcd-servers={etcd}",
            "--bind-address=127.0.0.1",
            "--advertise-address=192.0.2.1",  # must not be the loopback; nothing listens there
            f"--secure-port={secure}",
            "--insecure-port=0",
            f"--cert-dir={folder}/certs",
            f"--token-auth-file={folder}/tokens.csv",
            "--authorization-mode=RBAC",
            f"--service-account-key-file={folder}/sa.pub",
            f"--service-account-signing-key-file={folder}/sa.key",
            "--service-account-issuer=https://localhost",
            "--api-audiences=api",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--disable-admission-plugins=ServiceAccount",
            "--allow-privileged",
        )
        wait_until(lambda: self.asked("/readyz") == b"ok", "the API server")
        self._daemon(
            "kube-controller-manager",
            f"--kubeconfig={self.kubeconfig}",
            "--port=0",
            "--secure-port=0",
            "--leader-elect=false",
            "--controllers=job,replicaset,deployment,garbagecollector,namespace,statefulset,daemonset",
        )

    def write_kubeconfig(self, path: Path, token: str) -> None:
        """Write a kubeconfig for the owner of that token."""
        path.write_text(
            "apiVersion: v1\nkind: Config\ncurrent-context: x\n"
            f"clusters: [{{name: c, cluster: {{server: '{self.url}', insecure-skip-tls-verify: true}}}}]\n"
            f"users: [{{name: u, user: {{token: {token}}}}}]\n"
            f"contexts: [{{name: x, context: {{cluster: c, user: u}}}}]\n"
        )
        path.chmod(0o600)

    def _start_node(self) -> None:
        folder = self.folder
        (folder / "cni/10-lo.conflist").write_text(
            '{"cniVersion": "0.4.0", "name": "lo", "plugins": [{"type": "loopback"}]}'
        )
        (folder / "containerd.toml").write_text(_CONTAINERD.format(folder=folder))
        self._daemon("containerd", "--config", f"{folder}/containerd.toml")
        wait_until((folder / "c.sock").exists, "containerd")
        for name in ("pause", "busybox"):
            self._import(name)
        _, _, _, kubelet, health, read_only = self._ports
        (folder / "kubelet.yaml").write_text(_KUBELET.format(port=kubelet, health=health, read_only=read_only))
        self._daemon(
            "kubelet",
            f"--config={folder}/kubelet.yaml",
            f"--kubeconfig={self.kubeconfig}",
            f"--hostname-override={self.node}",
            f"--root-dir={folder}/kubelet",
            "--container-runtime=remote",
            f"--container-runtime-endpoint=unix://{folder}/c.sock",
            f"--image-service-endpoint=unix://{folder}/c.sock",
            f"--cert-dir={folder}/certs",
            "--register-node=true",
        )
        self._daemon(
            "kube-scheduler", f"--kubeconfig={self.kubeconfig}", "--port=0", "--secure-port=0", "--leader-elect=false"
        )
        wait_until(self._is_ready, "a ready node", 120)
        # Remove the taint of a new node here: the controller that removes it does not run.
        taints = json.dumps({"spec": {"taints": None}}).encode()
        self.ask("PATCH", f"/api/v1/nodes/{self.node}", taints, "application/merge-patch+json")

    def _is_ready(self) -> bool:
        try:
            status = self.get(f"/api/v1/nodes/{self.node}")["status"]
        except urllib.error.HTTPError:
            return False
        return any(one["type"] == "Ready" and one["status"] == "True" for one in status.get("conditions", ()))

    def _import(self, name: str) -> None:
        """Build and import an image that contains busybox alone."""
        root = self.folder / f"image-{name}"
        (root / "bin").mkdir(parents=True)
        (root / "tmp").mkdir()
        for link in ("busybox", "sh", "sleep", "dd", "true"):
            shutil.copy(str(shutil.which("busybox", path=_PATH)), root / "bin" / link)
        layer = self.folder / f"{name}.layer.tar"
        _run("tar", "-C", root, "-cf", layer, ".")
        digest = subprocess.run(["sha256sum", layer], check=True, capture_output=True, text=True).stdout.split()[0]
        image = self.folder / f"image-{name}-tar"
        image.mkdir()
        shutil.move(layer, image / "layer.tar")
        command = ["/bin/sleep", "1000000"] if name == "pause" else ["/bin/sh"]
        (image / "config.json").write_text(
            json.dumps(
                {
                    "architecture": "amd64",
                    "os": "linux",
                    "config": {"Cmd": command, "Env": ["PATH=/bin"]},
                    "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
                }
            )
        )
        (image / "manifest.json").write_text(
            json.dumps([{"Config": "config.json", "RepoTags": [f"localhost/{name}:1"], "Layers": ["layer.tar"]}])
        )
        whole = self.folder / f"{name}.tar"
        _run("tar", "-C", image, "-cf", whole, "manifest.json", "config.json", "layer.tar")
        self.load(whole)

    def load(self, archive: Path) -> None:
        """Import the images of an archive into the node."""
        _run(_where("ctr"), "-a", self.folder / "c.sock", "-n", "k8s.io", "images", "import", archive)

    def stop(self) -> None:
        """Delete everything that runs, wait for its end, and stop the daemons, newest first."""
        if self._with_node and (self.folder / "kubelet.yaml").exists():
            for kind in ("apis/apps/v1/namespaces/default/deployments", "apis/batch/v1/namespaces/default/jobs"):
                self.ask("DELETE", f"/{kind}?propagationPolicy=Background")
            self.ask("DELETE", "/api/v1/namespaces/default/pods?gracePeriodSeconds=1")
            wait_until(lambda: not self.get("/api/v1/pods")["items"], "the end of every pod", 90)
        for process in reversed(self._running):
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(20)
        if self._with_node:
            self._clean()

    def _clean(self) -> None:
        mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
        for mount in sorted((one for one in mounts if one.startswith(str(self.folder))), key=len, reverse=True):
            subprocess.run(["umount", "-l", mount], check=False)
        for link in Path("/var/log/containers").glob("*.log"):
            if not link.exists():
                link.unlink()
        for top in Path("/sys/fs/cgroup").glob("*/kubepods"):
            for directory in sorted((*top.rglob("*/"), top), key=lambda path: len(path.parts), reverse=True):
                if directory.is_dir():
                    directory.rmdir()

    def asked(self, path: str) -> bytes:
        """Return the body of the answer; empty if the request fails."""
        try:
            return self.ask("GET", path)
        except (OSError, urllib.error.URLError):
            return b""

    def get(self, path: str) -> Any:
        return json.loads(self.ask("GET", path))

    def ask(self, method: str, path: str, body: object = None, kind: str = "application/json") -> bytes:
        data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, method=method)
        request.add_header("Authorization", f"Bearer {_TOKEN}")
        request.add_header("Content-Type", kind)
        unchecked = ssl._create_unverified_context()
        with urllib.request.urlopen(request, timeout=30, context=unchecked) as answer:
            found: bytes = answer.read()
        return found

    def create(self, path: str, body: Mapping[str, Any]) -> Any:
        return json.loads(self.ask("POST", path, body))

    def _daemon(self, name: str, *arguments: str) -> None:
        with (self.folder / "log" / f"{name}.out").open("wb") as output:
            self._running.append(
                subprocess.Popen(
                    [_where(name), *arguments],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                    cwd=self.folder,
                )
            )


_CONTAINERD = """\
version = 2
root = "{folder}/croot"
state = "{folder}/cstate"
[grpc]
  address = "{folder}/c.sock"
[plugins."io.containerd.grpc.v1.cri"]
  restrict_oom_score_adj = true
  sandbox_image = "localhost/pause:1"
  stream_server_address = "127.0.0.1"
  disable_tcp_service = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{folder}/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "native"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
"""
_KUBELET = """\
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: 127.0.0.1
port: {port}
readOnlyPort: {read_only}
healthzBindAddress: 127.0.0.1
healthzPort: {health}
cgroupDriver: cgroupfs
cgroupsPerQOS: true
cgroupRoot: /
failSwapOn: false
enforceNodeAllocatable: [pods]
authentication: {{anonymous: {{enabled: true}}, webhook: {{enabled: false}}}}
authorization: {{mode: AlwaysAllow}}
oomScoreAdj: 0
maxOpenFiles: 10000
evictionHard: {{memory.available: "50Mi", nodefs.available: "1%", imagefs.available: "1%", nodefs.inodesFree: "1%"}}
protectKernelDefaults: false
makeIPTablesUtilChains: false
"""


def pod_spec(script: str, *, memory: str = "32Mi", restart: str = "Never") -> dict[str, Any]:
    """Return a pod that runs a shell script on the host network, because the cluster has no network of its own."""
    amounts = {"cpu": "200m", "memory": memory}
    container = {
        "name": "main",
        "image": "localhost/busybox:1",
        "imagePullPolicy": "Never",
        "command": ["/bin/sh", "-c", script],
        "resources": {"limits": amounts, "requests": amounts},
    }
    return {
        "hostNetwork": True,
        "automountServiceAccountToken": False,
        "restartPolicy": restart,
        "terminationGracePeriodSeconds": 1,
        "containers": [container],
    }


def cluster(*, with_node: bool = True) -> AbstractContextManager[Kubernetes]:
    """Run a cluster for the block, and stop its processes at the end."""
    return running("kube", partial(Kubernetes, with_node=with_node))


def _where(name: str) -> str:
    found = shutil.which(name, path=_PATH)
    assert found is not None, name
    return found


def _run(*command: object) -> None:
    subprocess.run([str(part) for part in command], check=True, capture_output=True, timeout=120)
