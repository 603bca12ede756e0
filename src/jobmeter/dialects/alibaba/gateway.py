"""The fallback of the vendor's dialects: calls of its SDKs for a product or a version that is not supported."""

from collections.abc import Sequence

from jobmeter.access.call import Call
from jobmeter.access.signatures import ALIBABA, Scheme
from jobmeter.dialects.alibaba import errors
from jobmeter.dialects.alibaba.operation import url_form
from jobmeter.dialects.alibaba.product import named
from jobmeter.dialects.base import Answer, Context, Gap, GapStatus, Match, Operation
from jobmeter.errors import JobmeterError, NotFoundError


class Gateway:
    """See ``jobmeter.dialects.base.Dialect``: it has no operations, and answers with the vendor's error."""

    name = "alibaba"
    title = "Alibaba Cloud, any other product"
    schemes: Sequence[Scheme] = ALIBABA
    operations: Sequence[Operation] = ()
    gaps: Sequence[Gap] = (
        Gap(
            "Products and versions that this page does not name",
            "They are refused with `InvalidAction.NotFound`.",
            GapStatus.NEVER,
        ),
    )

    def match(self, call: Call) -> Match | None:
        """See ``Dialect.match``."""
        version, action = named(call)
        form = url_form(call.raw_path)
        if form is not None:
            version, action = form.version, f"{form.product}/{form.action}"
        if not version and not action:
            return None
        message = f"Specified api {action!r} of version {version!r} is not found, please check your url and method."
        raise NotFoundError(message, "path", action)

    def render_error(self, call: Call, context: Context, error: JobmeterError) -> Answer:
        """See ``Dialect.render_error``."""
        return errors.render(call, context, error, {})
