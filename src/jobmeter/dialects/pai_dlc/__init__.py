"""Alibaba Cloud PAI-DLC 2020-12-03: the job metrics of Deep Learning Containers. Sources and gaps: SPEC.md."""

from collections.abc import Sequence

from jobmeter.access.call import Call
from jobmeter.access.signatures import ALIBABA, SHARE, Scheme
from jobmeter.dialects.base import Answer, Context, Match
from jobmeter.dialects.pai_dlc import errors, names, routes
from jobmeter.errors import JobmeterError


class PaiDlc:
    """See ``jobmeter.dialects.base.Dialect``."""

    name = names.NAME
    title = "Alibaba Cloud PAI-DLC, API version 2020-12-03"
    schemes: Sequence[Scheme] = (*ALIBABA, SHARE)
    operations = routes.OPERATIONS
    gaps = routes.GAPS

    def match(self, call: Call) -> Match | None:
        """See ``Dialect.match``."""
        return routes.match(call)

    def render_error(self, call: Call, context: Context, error: JobmeterError) -> Answer:
        """See ``Dialect.render_error``."""
        return errors.render(call, context, error)
