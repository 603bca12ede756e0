"""Checks of the scheduler of this node: whether it runs here, and whether it answers."""

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from jobmeter.collect import files
from jobmeter.collect.discover.clusters import read_own_cluster
from jobmeter.collect.doctor.base import Check, SourceStatus
from jobmeter.collect.machine import Machine
from jobmeter.collect.scheduler.flink.rest import FlinkRest
from jobmeter.errors import ConfigurationError, JobmeterError

_AREA = "schedulers"
_SECONDS = 15.0
FLINK = "http://127.0.0.1:8081"
"""Default address of a job manager."""


class _Version(msgspec.Struct):
    gitVersion: str = ""  # noqa: N815 - as Kubernetes spells it


class _Overview(msgspec.Struct, rename="kebab"):
    flink_version: str = ""
    taskmanagers: int = 0


def check_schedulers(
    machine: Machine, environment: Mapping[str, str], kubeconfig: str | None = None, flink: str | None = None
) -> Iterator[Check]:
    """Check Slurm, Kubernetes and Flink. It is a problem if a configured scheduler does not answer."""
    yield _check_slurm(machine, environment)
    yield _check_kubernetes(machine, environment, kubeconfig)
    yield _check_flink(flink or environment.get("FLINK_REST"))


def _check_slurm(machine: Machine, environment: Mapping[str, str]) -> Check:
    own = read_own_cluster(environment)
    here = f"slurmd of cluster {own} runs here" if own else "slurmd runs here"
    node = here if runs(machine, b"slurmd") else "no slurmd runs here"
    scontrol = shutil.which("scontrol", path=environment.get("PATH"))
    if scontrol is None:
        if "no " not in node:
            text = f"{node}: its jobs are measured; Slurm's commands are not on the path"
            return Check(_AREA, "slurm", SourceStatus.OK, text, "run `jobmeter scheduler slurm` where they are")
        return Check(_AREA, "slurm", SourceStatus.ABSENT, "neither slurmd nor Slurm's commands are here")
    said, failed = _ping(scontrol, environment)
    if failed:
        advice = "set SLURM_CONF to the cluster's slurm.conf, and see whether slurmctld and munged run"
        status = SourceStatus.PROBLEM if "no " not in node or "SLURM_CONF" in environment else SourceStatus.ABSENT
        return Check(_AREA, "slurm", status, f"{node}; the controller does not answer: {said}", advice)
    return Check(
        _AREA, "slurm", SourceStatus.OK, f"{node}; {said}", "one `jobmeter scheduler slurm` a cluster reads it"
    )


def _ping(scontrol: str, environment: Mapping[str, str]) -> tuple[str, bool]:
    """Return the controller's answer in one line, and True if the controller does not answer."""
    try:
        done = subprocess.run(
            [scontrol, "ping"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SECONDS,
            env=dict(environment),
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error), True
    lines = (done.stdout + done.stderr).strip().splitlines()
    up = [line for line in lines if line.endswith("is UP")]
    return (up or lines or ["its answer is empty"])[0], not up


def _check_kubernetes(machine: Machine, environment: Mapping[str, str], kubeconfig: str | None) -> Check:
    node = runs(machine, b"kubelet")
    here = "kubelet runs here" if node else "no kubelet runs here"
    if node and not os.access(f"{machine.var}/log/containers", os.R_OK | os.X_OK):
        text = f"{here}, and /var/log/containers cannot be read: restarts of containers are not distinguished"
        return Check(
            _AREA, "kubernetes", SourceStatus.LIMITED, text, "in a pod: mount /var/log/containers and /var/log/pods"
        )
    if not (kubeconfig or environment.get("KUBECONFIG") or environment.get("KUBERNETES_SERVICE_HOST")):
        text = f"{here}; no API server is named (KUBECONFIG, --kubeconfig, or a pod's own account)"
        return Check(_AREA, "kubernetes", SourceStatus.OK if node else SourceStatus.ABSENT, text)
    try:
        version = _kubernetes_version(kubeconfig)
    except ConfigurationError as error:
        return Check(_AREA, "kubernetes", SourceStatus.PROBLEM, f"{here}; {error.message}", "see `kubectl config view`")
    except (JobmeterError, msgspec.DecodeError) as error:
        advice = "see `kubectl get --raw /version` with the same configuration"
        return Check(_AREA, "kubernetes", SourceStatus.PROBLEM, f"{here}; {error}", advice)
    advice = "one `jobmeter scheduler kubernetes` a cluster watches it"
    return Check(_AREA, "kubernetes", SourceStatus.OK, f"{here}; the API server answers ({version})", advice)


def _kubernetes_version(kubeconfig: str | None) -> str:
    from jobmeter.collect.scheduler.kubernetes.api import HttpApi  # noqa: PLC0415 - its library may not be there

    return msgspec.json.decode(HttpApi(kubeconfig, None).read_page("version", ""), type=_Version).gitVersion


def _check_flink(address: str | None) -> Check:
    named = address is not None
    try:
        rest = FlinkRest(address or FLINK)
        overview = rest.get("/overview", _Overview)
    except JobmeterError as error:
        if not named:
            text = f"no job manager answers at {FLINK}, and none is named (FLINK_REST, --flink)"
            return Check(_AREA, "flink", SourceStatus.ABSENT, text)
        return Check(
            _AREA, "flink", SourceStatus.PROBLEM, error.message, "see whether the job manager's REST port is open"
        )
    if overview is None or not overview.flink_version:
        text = f"the server at {rest.address} is no job manager"
        return Check(_AREA, "flink", SourceStatus.PROBLEM if named else SourceStatus.ABSENT, text)
    text = f"Flink {overview.flink_version} at {rest.address}, {overview.taskmanagers} task managers"
    return Check(
        _AREA, "flink", SourceStatus.OK, text, f"one `jobmeter scheduler flink --rest {rest.address}` reads it"
    )


def runs(machine: Machine, program: bytes) -> bool:
    """Return True if a process of that name runs."""
    folders = (path for path in Path(machine.proc).iterdir() if path.name.isdigit())
    return any((files.read(str(path / "comm")) or b"").strip() == program for path in folders)
