"""OpenTSDB's names and ours: metrics, and the tags that identify the source of a series.

A metric that the catalogue knows, and one of a program (``app.``), has the same name on both sides. Any other name is
stored below ``external.`` and shown as it was put. So the mapping is one to one.
"""

from jobmeter.model.catalog import CATALOG

EXTERNAL = "external."
HOST = "host"
"""The tag that names a node in answers, as OpenTSDB's own senders call it."""
NODE_TAGS = (HOST, "node", "fqdn")
"""Tags that name the node: the first one that a data point has does, further ones are labels.

collectd's write_tsdb sends ``fqdn``; tcollector sends ``node`` beside ``host``, and means a NUMA node.
"""
JOB, REPLICA, ATTEMPT, DEVICE, CLUSTER, PROJECT = "job", "replica", "attempt", "device", "cluster", "project"
IDENTITY = frozenset({JOB, REPLICA, ATTEMPT, DEVICE, CLUSTER, PROJECT})
"""Tags that never become labels."""


def from_opentsdb(name: str) -> str:
    """Our name of a metric of theirs."""
    return name if _same(name) else EXTERNAL + name


def to_opentsdb(name: str) -> str:
    """Their name of a metric of ours."""
    if name.startswith(EXTERNAL) and not _same(name):
        return name.removeprefix(EXTERNAL)
    return name


def _same(name: str) -> bool:
    """True for a name that is the same on both sides: without every ``external.`` before it, it is known."""
    core = name
    while core.startswith(EXTERNAL):
        core = core.removeprefix(EXTERNAL)
    return core in CATALOG or core.startswith("app.")
