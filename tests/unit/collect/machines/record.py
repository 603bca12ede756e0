"""Recorder of the machines: ``python -m tests.unit.collect.machines.record slurm|slurm-v2|kubernetes``.

``slurm`` and ``kubernetes`` start a real cluster (see ``tests.support``) with jobs that wait, and record this machine.
``slurm-v2 NAME [ROOT]`` records a virtual machine with the Slurm of the Debian in ``ROOT``, and ``kubernetes-systemd``
records groups that it creates. ``running NAME PATTERN ABOUT`` records jobs that run already. ``expect`` writes the
agent's output for each machine: read it before you commit it.
"""

import json
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support import kubernetes, slurm
from tests.support.machine import Machine as Guest
from tests.support.waiting import wait_until
from tests.unit.collect.machines.machine import load, observed, plant, read, save

from jobmeter.collect import files
from jobmeter.collect.cgroup.paths import read_groups
from jobmeter.collect.process.stat import list_pids

HERE = Path(__file__).parent
_Makers = dict[str, Callable[..., None]]
_WAIT = "python3 -c 'import threading; x = bytearray(30 << 20); threading.Event().wait(600)'"


def _processes(pattern: str, program: str) -> int:
    """Count the processes with that name in groups whose path contains the pattern."""
    found = 0
    for pid in list_pids("/proc"):
        groups, comm = read_groups("/proc", pid) or {}, files.read(f"/proc/{pid}/comm")
        found += comm == f"{program}\n".encode() and any(pattern in path for path in groups.values())
    return found


def record_slurm() -> None:
    """Record two slurmd on one machine: a job of three tasks over both."""
    with slurm.cluster("rec") as cluster:
        wide = cluster.submit(f"srun {_WAIT}", "-J", "wide", "-N2", "-n3", "--mem=150", "--gres=gpu:1")
        wait_until(lambda: _processes(f"job_{wide}", "python3") == 3, "three tasks")
        machine = read(f"slurm_{cluster.name}", "")
        release = cluster.command("sinfo", "--version").strip()
        wait_until(lambda: "JobName" in cluster.accounts(wide), "the accounting")
        says = cluster.accounts(wide)
        machine.about = (
            f"{release}, two slurmd on one machine with version 1 of control groups: a job of three tasks on both"
            " nodes, which each wait with 30 MiB. Recorded by record.py."
        )
        machine.truth = {str(wide): _wide(says["JobName"], says["User"], says["Partition"])}
        save(machine, HERE / "slurm-22.05-v1.json")
        cluster.command("scancel", str(wide))


@contextmanager
def _guest(script: str, name: str, *words: str) -> Iterator[Guest]:
    """Return the virtual machine after it has run a script of this folder."""
    with tempfile.TemporaryDirectory() as folder:
        guest = Guest(Path(folder, "vm"), disk=2**20)
        guest.start("/bin/bash", str(HERE / script), name, sys.executable, *words)
        try:
            wait_until(lambda: not guest.runs, "the end of the machine", 300)
        finally:
            guest.stop()
        assert guest.said("status").strip() == "0", guest.said("log")
        yield guest


def record_slurm_v2(name: str, *root: str) -> None:
    """Record like ``record_slurm``, in the virtual machine with version 2; ``root`` is a folder with another Debian."""
    with _guest("slurm_v2.sh", name, *root) as guest:
        found = load(guest.share / f"{name}.json")
        said = re.match(r"JobId=(\d+) JobName=(\S+) .*?UserId=(\w+)\(.* Partition=(\S+) ", guest.said("job"))
        assert said, guest.said("job")
        found.about = (
            f"{guest.said('version').strip()} without systemd, two slurmd on one machine with version 2 alone: a job of"
            " three tasks on both nodes, which each wait with 30 MiB. Recorded by record.py."
        )
        found.truth = {said[1]: _wide(said[2], said[3], said[4])}
        save(found, HERE / f"{name}.json")
        (HERE.parent / "recorded" / f"{name}-squeue.json").write_text(guest.said("squeue.json"))


def record_kubernetes_systemd() -> None:
    """Record groups named as the systemd driver does, on real controllers of version 2."""
    name = "kubernetes-systemd-v2"
    with _guest("kubernetes_systemd_v2.sh", name) as guest:
        found = load(guest.share / f"{name}.json")
    found.about = (
        "Real controllers of version 2. The groups have the names that the driver systemd and containerd, CRI-O and"
        " Docker give them, and were made by kubernetes_systemd_v2.sh: no kubelet ran. Recorded by record.py."
    )
    for digit, mebibytes in ((1, 64), (2, 32), (3, 96)):
        pod = f"{str(digit) * 8}-2222-3333-4444-555555555555"
        found.truth[f"pod-{pod}"] = {"replicas": ["worker-0"], "memory": mebibytes * 2**20}
    save(found, HERE / f"{name}.json")


def _wide(name: str, user: str, partition: str) -> dict[str, object]:
    """Return Slurm's description of the job of three tasks."""
    replicas = [f"worker-{rank}" for rank in range(3)]
    return {
        "name": name,
        "user": user,
        "resource_group": partition,
        "replicas": replicas,
        "memory": 150 * 2**20,
    }


def record_kubernetes() -> None:
    """Record a node with containerd and the cgroupfs driver: a Job of two pods, and a container in its second run."""
    with kubernetes.cluster() as cluster:
        pods = "/api/v1/namespaces/default/pods"
        wait = "x=0; sleep 600"
        first = "if [ -e /data/ran ]; then sleep 600; fi; true > /data/ran; exit 3"
        spec = kubernetes.pod_spec(first, restart="Always")
        spec["containers"][0]["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
        spec["volumes"] = [{"name": "data", "emptyDir": {}}]
        cluster.create(pods, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "again"}, "spec": spec})
        template = {"spec": kubernetes.pod_spec(wait, memory="48Mi")}
        job = {"completions": 2, "parallelism": 2, "template": template}
        body = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "two"}, "spec": job}
        cluster.create("/apis/batch/v1/namespaces/default/jobs", body)

        def running() -> bool:
            found = cluster.get(pods)["items"]
            states = [one for pod in found for one in pod["status"].get("containerStatuses", ())]
            again = any(one["restartCount"] == 1 for one in states)
            return len(states) == 3 and again and all("running" in one["state"] for one in states)

        wait_until(running, "three containers", 120)
        version = cluster.get("/version")["gitVersion"]
        about = (
            f"Kubernetes {version}, containerd, the driver cgroupfs, version 1 of control groups: a Job of two pods,"
            " and a pod whose container runs for the second time. Recorded by record.py."
        )
        machine = read("kubepods", about)
        for pod in cluster.get(pods)["items"]:
            (status,) = pod["status"]["containerStatuses"]
            limit = pod["spec"]["containers"][0]["resources"]["limits"]["memory"]
            machine.truth[f"pod-{pod['metadata']['uid']}"] = {
                "replicas": ["worker-0"],
                "attempt": status["restartCount"],
                "memory": int(limit.removesuffix("Mi")) * 2**20,
            }
        save(machine, HERE / "kubernetes-cgroupfs-v1.json")


def expect() -> None:
    """Write the agent's output for each machine."""
    for path in sorted(HERE.glob("*.json")):
        if not path.name.endswith(".expected.json"):
            with tempfile.TemporaryDirectory() as folder:
                plant(load(path), Path(folder))
                found = observed(Path(folder), "n1")
            path.with_suffix(".expected.json").write_text(json.dumps(found, indent=1) + "\n")


def main(what: str, *words: str) -> None:
    """Run the command that the module's docstring describes."""
    if what == "running":
        name, pattern, about = words
        save(read(pattern, about), HERE / f"{name}.json")
        return
    made: _Makers = {
        "slurm": record_slurm,
        "slurm-v2": record_slurm_v2,
        "kubernetes": record_kubernetes,
        "kubernetes-systemd": record_kubernetes_systemd,
        "expect": expect,
    }
    made[what](*words)


if __name__ == "__main__":
    main(*sys.argv[1:])
