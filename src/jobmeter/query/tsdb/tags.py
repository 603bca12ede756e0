"""Series as OpenTSDB shows them: metric name, tags, and an id."""

from collections.abc import Mapping, Sequence

import msgspec

from jobmeter.model.series import Series
from jobmeter.wire.opentsdb.names import (
    ATTEMPT,
    CLUSTER,
    DEVICE,
    HOST,
    JOB,
    NODE_TAGS,
    PROJECT,
    REPLICA,
    make_opentsdb_name,
)


class TagView(msgspec.Struct, frozen=True):
    """Tags of series in one query of one caller.

    The node is shown as ``host``, or by the first of its other names that the query uses. The project is a tag for
    callers whose key sees several of them.
    """

    project: bool
    node: str = HOST

    @classmethod
    def for_query(cls, keys: Sequence[str], project: str | None) -> "TagView":
        """Build the view for a query that uses those tags, by a caller with that project (None: all)."""
        node = next((key for key in keys if key in NODE_TAGS), HOST)
        return cls(project is None, node)

    def read_tags(self, series: Series) -> dict[str, str]:
        """Return the tags of a series, sorted by name."""
        found = dict(series.labels)
        node = next((name for name in (self.node, *NODE_TAGS) if name not in found), self.node)
        identity = {
            PROJECT: series.project if self.project else "",
            CLUSTER: series.cluster,
            node: series.node,
            DEVICE: series.device,
            JOB: series.job,
            REPLICA: series.replica,
            ATTEMPT: str(series.attempt) if series.attempt else "",
        }
        found.update({name: value for name, value in identity.items() if value})
        return dict(sorted(found.items()))


class Tagged(msgspec.Struct, frozen=True):
    """Series with its tags."""

    series: Series
    tags: Mapping[str, str]
    metric: str = msgspec.field(default="")

    def tag(self, key: str) -> str | None:
        """Return the value of a tag; the node under each of its names, the project even if not shown."""
        found = self.tags.get(key)
        if found is None and key in NODE_TAGS:
            found = self.series.node or None
        if found is None and key == PROJECT:
            found = self.series.project
        return found


def tag_series(series: Sequence[Series], view: TagView) -> list[Tagged]:
    """Add the tags to series, and sort them by metric and tags."""
    found = [Tagged(one, view.read_tags(one), make_opentsdb_name(one.metric)) for one in series]
    return sorted(found, key=lambda one: (one.metric, list(one.tags.items()), one.series.project))
