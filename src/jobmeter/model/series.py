"""Series: its names, and its two 64-bit keys.

A row of the store is (job key, series id, time, value). Both numbers are the first eight bytes of a BLAKE2b digest over
a canonical text, so that every server and every agent computes equal ones.
"""

import re
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from hashlib import blake2b

from jobmeter.errors import InvalidRequestError

DEFAULT_PROJECT = "default"
NO_JOB = 0
"""Job key of samples that belong to no job."""

SPECIAL = "special."
"""Prefix of metrics whose samples are codes of special values (NaN, infinities, stale); see ``model.special``."""
MAX_LABELS = 32
MAX_NAME = 128
MAX_LABEL_VALUE = 256
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@+*=~-]{0,127}")
_METRIC = re.compile(r"(?:special\.)?[A-Za-z_][A-Za-z0-9._:-]{0,199}")
_LABEL = re.compile(r"[A-Za-z_][A-Za-z0-9_.]{0,63}")
_PROJECT = re.compile(r"[A-Za-z0-9-]{1,64}")
_NOT_IN_JOB_IDS = frozenset("/\\'\"`<>")


class NamePart(StrEnum):
    """Field of a series that holds a name."""

    METRIC = "metric"
    PROJECT = "project"
    CLUSTER = "cluster"
    NODE = "node"
    DEVICE = "device"
    JOB = "job"
    REPLICA = "replica"
    LABEL = "label"
    """Names of labels."""
    LABEL_VALUE = "label-value"


class _Cached:
    """Slots for values that are computed once: a series is looked up and written repeatedly."""

    __slots__ = ("_checked", "_hash", "_id")

    _checked: bool
    _hash: int
    _id: int


@dataclass(frozen=True, slots=True)
class Series(_Cached):
    """Series of measurements over time.

    A name that is unknown or does not apply is empty. A device metric of a whole device names node and device; if it
    was measured for a job it names the job and, if known, the replica too. ``attempt`` counts the restarts of a replica
    from 0. ``labels`` are sorted by name and split one metric into parts (an interface, a disk).
    """

    metric: str
    project: str = DEFAULT_PROJECT
    cluster: str = ""
    node: str = ""
    device: str = ""
    job: str = ""
    replica: str = ""
    attempt: int = 0
    labels: tuple[tuple[str, str], ...] = ()

    @property
    def id(self) -> int:
        """Id over all fields, 64 bits: equal on every server."""
        try:
            return self._id
        except AttributeError:
            object.__setattr__(self, "_id", compute_series_id(self))
            return self._id

    def __hash__(self) -> int:
        """Hash over all fields."""
        try:
            return self._hash
        except AttributeError:
            place = (self.cluster, self.node, self.device, self.job, self.replica, self.attempt)
            object.__setattr__(self, "_hash", hash((self.metric, self.project, place, self.labels)))
            return self._hash

    @property
    def job_key(self) -> int:
        """Key of (project, job), 64 bits; ``NO_JOB`` for a series without a job."""
        return compute_job_key(self.project, self.job) if self.job else NO_JOB


def _digest(*parts: str) -> int:
    text = "\x1f".join(parts).encode()
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "little")


@lru_cache(maxsize=65_536)
def compute_job_key(project: str, job: str) -> int:
    """Compute the key of a job, 64 bits; never ``NO_JOB``. Equal job ids of two projects have different keys."""
    return _digest("job", project, job) or 1


@lru_cache(maxsize=65_536)
def compute_node_key(project: str, node: str) -> int:
    """Compute the key of a node's system log, 64 bits; never ``NO_JOB``, and never a job's."""
    return _digest("node", project, node) or 1


def compute_series_id(series: Series) -> int:
    """Compute the id of a series, 64 bits.

    Names cannot contain the separator: ``check_series`` refuses control characters.
    """
    labels = [part for pair in series.labels for part in pair]
    return _digest(
        "series",
        series.metric,
        series.project,
        series.cluster,
        series.node,
        series.device,
        series.job,
        series.replica,
        str(series.attempt),
        *labels,
    )


def check_name(value: str, field: str) -> str:
    """Validate a name of a node, device, cluster, replica or user.

    Letters, digits and ``. _ : @ + * = ~ -``, at most 128, beginning with a letter or digit: none of these can climb a
    path, end a quoted text or hide in a terminal. Raises InvalidRequestError naming ``field``.
    """
    if not is_name(value):
        raise InvalidRequestError(
            f"{field} {value[:MAX_NAME]!r} is not a name: 1 to 128 letters, digits and . _ : @ + * = ~ - are allowed",
            field,
        )
    return value


def is_name(text: str) -> bool:
    """True if ``check_name`` accepts the text."""
    return _NAME.fullmatch(text) is not None


def check_job_id(value: str, field: str = "job_id") -> str:
    """Validate a job id: 1 to 128 printable characters, no slash, no quote, no space at the ends."""
    if (
        not 1 <= len(value) <= MAX_NAME
        or not value.isprintable()
        or value != value.strip()
        or not _NOT_IN_JOB_IDS.isdisjoint(value)
        or value in {".", ".."}
    ):
        raise InvalidRequestError(
            f"{field} {value[:MAX_NAME]!r} is not a job id: 1 to 128 printable characters without / \\ ' \" ` < >",
            field,
        )
    return value


def check_project(value: str, field: str = "project") -> str:
    """Validate a project: 1 to 64 letters, digits and hyphens."""
    if not _PROJECT.fullmatch(value):
        raise InvalidRequestError(
            f"{field} {value[:MAX_NAME]!r} is not a project: 1 to 64 letters, digits and hyphens", field
        )
    return value


def choose_member_name(replica: str, node: str) -> str:
    """Return the name of a job's member: the replica, else the node if samples name no replica, else ``worker-0``."""
    return replica or node or "worker-0"


def check_series(series: Series) -> Series:
    """Validate all names of a series. Raises InvalidRequestError naming the first invalid one."""
    if hasattr(series, "_checked"):
        return series
    if not _METRIC.fullmatch(series.metric):
        raise InvalidRequestError(f"metric {series.metric[:MAX_NAME]!r} is not a metric name", "metric")
    check_project(series.project)
    for field in ("cluster", "node", "device", "replica"):
        value = getattr(series, field)
        if value:
            check_name(value, field)
    if series.job:
        check_job_id(series.job)
    if not 0 <= series.attempt < 2**31:
        raise InvalidRequestError(f"attempt {series.attempt} is not between 0 and 2^31", "attempt")
    _check_labels(series.labels)
    object.__setattr__(series, "_checked", True)
    return series


def make_at_place(metric: str, place: Series) -> Series:
    """Build the series of another metric with the replica, device and labels of ``place``; both already validated."""
    series = Series(
        metric,
        place.project,
        place.cluster,
        place.node,
        place.device,
        place.job,
        place.replica,
        place.attempt,
        place.labels,
    )
    object.__setattr__(series, "_checked", True)
    return series


def _check_labels(labels: tuple[tuple[str, str], ...]) -> None:
    if len(labels) > MAX_LABELS:
        raise InvalidRequestError(f"a series may have at most {MAX_LABELS} labels, not {len(labels)}", "labels")
    names = [name for name, _ in labels]
    if names != sorted(set(names)):
        raise InvalidRequestError("labels must be sorted by name, each name once", "labels")
    for name, value in labels:
        if not _LABEL.fullmatch(name):
            raise InvalidRequestError(f"label {name[:MAX_NAME]!r} is not a label name", "labels")
        if len(value) > MAX_LABEL_VALUE or not value.isprintable():
            raise InvalidRequestError(
                f"the value of label {name} must be at most {MAX_LABEL_VALUE} printable characters", "labels"
            )
