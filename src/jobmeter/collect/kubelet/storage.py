"""Storage that the pods of a node use, by the kubelet's HTTP interface.

https://kubernetes.io/docs/reference/instrumentation/node-metrics/#summary-api-source. Ephemeral storage is the writable
layers and logs of a pod's containers and its ``emptyDir`` volumes:
https://kubernetes.io/docs/concepts/storage/ephemeral-storage/. Cache storage is a persistent volume whose name contains
``cache``.
"""

import logging
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec
import urllib3

from jobmeter.collect import files
from jobmeter.collect.base import NodeIdentity, Owner, Samples
from jobmeter.collect.discover.member import Member
from jobmeter.collect.http_get import get
from jobmeter.collect.scheduler.kubernetes.objects import PodObject, limit_of_pod
from jobmeter.errors import InvalidRequestError, UnavailableError
from jobmeter.model.sample import Sample

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Folder with the token of a pod's service account, and the certificates of the cluster."""
_SECONDS = 2.0
_MOST_BYTES = 32 * 2**20
_CACHE = re.compile(r"(?:^|[^a-z])cache(?:[^a-z]|$)")
_log = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class KubeletSettings:
    """Address of the node's kubelet, ``http[s]://HOST:PORT``, and the files with its CA and with a token."""

    url: str
    ca_file: Path | None = None
    token_file: Path | None = None


class _Usage(msgspec.Struct, rename="camel", frozen=True):
    used_bytes: int | None = None
    capacity_bytes: int | None = None


class _Claim(msgspec.Struct, frozen=True):
    name: str = ""


class _Volume(_Usage, rename="camel", frozen=True):
    name: str = ""
    pvc_ref: _Claim | None = None

    @property
    def is_cache(self) -> bool:
        """True for a persistent volume with the word ``cache`` in its name or in its claim's."""
        return self.pvc_ref is not None and any(map(_CACHE.search, (self.name, self.pvc_ref.name)))


class _Container(msgspec.Struct, frozen=True):
    rootfs: _Usage | None = None
    logs: _Usage | None = None


class _PodReference(msgspec.Struct, frozen=True):
    uid: str = ""


class _PodUsage(msgspec.Struct, frozen=True):
    reference: _PodReference = msgspec.field(name="podRef", default=_PodReference())
    containers: list[_Container] | None = None
    volumes: list[_Volume] | None = msgspec.field(name="volume", default=None)
    ephemeral: _Usage | None = msgspec.field(name="ephemeral-storage", default=None)


class _Summary(msgspec.Struct, frozen=True):
    pods: list[_PodUsage] | None = None


class _Pods(msgspec.Struct, frozen=True):
    items: list[PodObject] | None = None


class KubeletApi:
    """Client of the kubelet's HTTP interface. For one thread."""

    def __init__(self, settings: KubeletSettings, node: str) -> None:
        """Raise InvalidRequestError for an invalid address. The kubelet's certificate must be for ``node``."""
        try:
            url = urllib3.util.parse_url(settings.url)
        except urllib3.exceptions.LocationParseError:
            url = urllib3.util.Url()
        if url.scheme not in {"http", "https"} or not url.host or url.auth or url.request_uri != "/":
            raise InvalidRequestError("the address of the kubelet must be http[s]://HOST:PORT", "kubelet")
        self._base = f"{url.scheme}://{url.netloc}"
        self._token = (settings.token_file or ACCOUNT / "token") if url.scheme == "https" else None
        ca = settings.ca_file or ACCOUNT / "ca.crt"
        # The kubelet is asked at an address of the node, and its certificate has the node's name.
        self._pool = urllib3.PoolManager(
            timeout=_SECONDS, ca_certs=str(ca) if ca.exists() else None, assert_hostname=node
        )

    def read_usage(self) -> list[_PodUsage]:
        """Return the usage of each pod. Raises UnavailableError."""
        return self._get("/stats/summary", _Summary).pods or []

    def list_pods(self) -> list[PodObject]:
        """Return the pods of the node. Raises UnavailableError."""
        return self._get("/pods", _Pods).items or []

    def _get(self, path: str, form: type[T]) -> T:
        # The cluster renews the token in its file.
        token = files.read_text(str(self._token)) if self._token else ""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        status, body = get("the kubelet", self._base, self._pool, self._base + path, headers, _MOST_BYTES)
        if status in {401, 403}:
            raise UnavailableError(
                f"the kubelet at {self._base} refuses {path} ({status}); allow its token the verb get on nodes/stats"
            )
        if status != 200:
            raise UnavailableError(f"the kubelet at {self._base} answers {path} with {status}")
        try:
            return msgspec.json.decode(body, type=form)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise UnavailableError(f"the answer of the kubelet at {self._base} is damaged: {error}") from error


class PodStorageCollector:
    """Collector of the storage that pods use. A pod without processes of a job is left out."""

    name = "storage"
    metrics = ("storage.ephemeral.usage", "storage.ephemeral.limit", "storage.cache.usage", "storage.cache.limit")

    def __init__(self, place: NodeIdentity, api: KubeletApi, members: Callable[[], Iterable[Member]]) -> None:
        self._place = place
        self._api = api
        self._members = members
        self._problem = ""

    def collect(self, now_ms: int) -> Samples:
        """Read the usage and the limits of the pods; no samples if the kubelet does not answer."""
        owners = _owners(self._members())
        if not owners:
            return []
        try:
            pods = self._api.read_usage()
        except UnavailableError as error:
            if error.message != self._problem:
                _log.warning("%s: the storage of pods is not measured", error.message)
            self._problem = error.message
            return []
        self._problem = ""
        limits = self._read_limits()
        return [
            Sample(self._place.make_replica_series(metric, owners[pod.reference.uid]), now_ms, float(value))
            for pod in pods
            if pod.reference.uid in owners
            for metric, value in _values(pod, limits.get(pod.reference.uid))
            if value is not None
        ]

    def _read_limits(self) -> dict[str, float]:
        """Return the limit of ephemeral storage of each pod with one; empty if the list is not permitted.

        Before version 1.33, the kubelet's list needs a right that also lets its holder run commands in pods.
        """
        try:
            pods = self._api.list_pods()
        except UnavailableError as error:
            _log.debug("the limits of pods are unknown: %s", error.message)
            return {}
        found = ((pod.metadata.uid, limit_of_pod(pod.spec, "ephemeral-storage")) for pod in pods)
        return {uid: float(limit) for uid, limit in found if limit is not None}


def _values(pod: _PodUsage, limit: float | None) -> Iterator[tuple[str, float | None]]:
    """Yield the metrics of a pod. A pod without a limit has the capacity of its filesystem."""
    parts = [part for one in pod.containers or () for part in (one.rootfs, one.logs) if part is not None]
    # Some kubelets leave out the sum of a pod without volumes.
    whole = [pod.ephemeral] if pod.ephemeral else parts
    used = _sum(part.used_bytes for part in whole)
    yield "storage.ephemeral.usage", used
    if used is not None:
        yield (
            "storage.ephemeral.limit",
            limit or next((one.capacity_bytes for one in whole if one.capacity_bytes), None),
        )
    cache = [volume for volume in pod.volumes or () if volume.is_cache]
    yield "storage.cache.usage", _sum(volume.used_bytes for volume in cache)
    yield "storage.cache.limit", _sum(volume.capacity_bytes for volume in cache)


def _sum(numbers: Iterable[int | None]) -> int | None:
    """Return the sum; None without numbers, or if any is unknown."""
    given = list(numbers)
    known = [number for number in given if number is not None]
    return sum(known) if known and len(known) == len(given) else None


def _owners(members: Iterable[Member]) -> dict[str, Owner]:
    """Return the replica of each pod, in its latest attempt. Pods with processes of several replicas are left out."""
    found: dict[str, set[Owner]] = {}
    for member in members:
        if member.pod_id and not member.measured:
            found.setdefault(member.pod_id, set()).add(member.owner)
    return {
        uid: max(owners, key=lambda owner: owner.attempt)
        for uid, owners in found.items()
        if len({(owner.job, owner.replica) for owner in owners}) == 1
    }
