"""Run number of a container by its id, from the kubelet's links in /var/log/containers.

``/var/log/containers/POD_NAMESPACE_CONTAINER-ID.log`` leads to ``/var/log/pods/NAMESPACE_POD_UID/CONTAINER/RUN.log``
(https://kubernetes.io/docs/concepts/cluster-administration/logging/). RUN counts the starts of the container from 0.
"""

import os
from pathlib import PurePath

FOLDER = "/var/log/containers"
_MOST = 10_000
"""Most containers whose runs are remembered."""


class ContainerRuns:
    """Finds the runs of containers by the links. For one thread."""

    def __init__(self, folder: str = FOLDER) -> None:
        self._folder = folder
        self._runs: dict[str, int] = {}
        self._pods: dict[str, str] = {}

    def find_number(self, pod: str, container: str) -> int | None:
        """Return the number of the run; 0 if there are no links to the pod.

        None if only links to other containers of the pod exist: this is the pod's sandbox, or a container that has just
        begun.
        """
        if container and container not in self._runs:
            self._read()
        return self._runs.get(container, None if container and pod in self._pods else 0)

    def find_namespace(self, pod: str) -> str:
        """Return the namespace of a pod; empty if there are no links to it."""
        if pod not in self._pods:
            self._read()
        return self._pods.get(pod, "")

    def _read(self) -> None:
        try:
            names = [entry.name for entry in os.scandir(self._folder)]
        except OSError:
            names = []
        found: dict[str, int] = {}
        pods: dict[str, str] = {}
        for name in names[:_MOST]:
            container = name.removesuffix(".log").rpartition("-")[2]
            if (place := self._read_target(name)) is not None:
                found[container], pod, namespace = place
                pods[pod] = namespace
        self._runs, self._pods = found, pods

    def _read_target(self, name: str) -> tuple[int, str, str] | None:
        """Return the run number that a link leads to, the uid of its pod, and the pod's namespace."""
        try:
            path = PurePath(os.readlink(f"{self._folder}/{name}"))  # noqa: PTH115 - beside scandir
        except OSError:
            return None
        run = path.stem
        if not (run.isascii() and run.isdigit() and len(run) < 10):
            return None
        folder = path.parent.parent.name
        return int(run), folder.rpartition("_")[2], folder.partition("_")[0]
