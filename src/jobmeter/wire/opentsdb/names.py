"""Maps OpenTSDB's names to ours: metrics, and the tags that identify the source of a series.

A metric of the catalogue or of a program (``app.``) has the same name on both sides. Any other name is stored below
``external.`` and shown unchanged. So the mapping is one to one.
"""

from jobmeter.model.catalog import CATALOG

EXTERNAL = "external."
HOST = "host"
"""The tag that names a node in answers; OpenTSDB's own senders use it too."""
NODE_TAGS = (HOST, "node", "fqdn")
"""Tags that name the node, in order of preference: the first one present is the node, the others are labels.

collectd's write_tsdb sends ``fqdn``. tcollector sends ``node`` beside ``host``, and means a NUMA node.
"""
JOB, REPLICA, ATTEMPT, DEVICE, CLUSTER, PROJECT = "job", "replica", "attempt", "device", "cluster", "project"
IDENTITY = frozenset({JOB, REPLICA, ATTEMPT, DEVICE, CLUSTER, PROJECT})
"""Tags that never become labels."""


def parse_opentsdb_name(name: str) -> str:
    """Return our name of an OpenTSDB metric."""
    return name if _is_same(name) else EXTERNAL + name


def make_opentsdb_name(name: str) -> str:
    """Return OpenTSDB's name of one of our metrics."""
    if name.startswith(EXTERNAL) and not _is_same(name):
        return name.removeprefix(EXTERNAL)
    return name


def _is_same(name: str) -> bool:
    """Return True for a name that is the same on both sides: a catalogue or program metric, ``external.`` removed."""
    core = name
    while core.startswith(EXTERNAL):
        core = core.removeprefix(EXTERNAL)
    return core in CATALOG or core.startswith("app.")
