"""The fallback of the vendor's dialects: calls of its SDKs for an unsupported product or version."""

from jobmeter.access.call import Call
from jobmeter.dialects.alibaba.common.operation import match_url_form
from jobmeter.dialects.alibaba.common.product import Product, exclude, read_action
from jobmeter.dialects.base import Match
from jobmeter.errors import NotFoundError


class Gateway(Product, frozen=True, kw_only=True):
    """A product without operations, which answers with the vendor's error."""

    def find_operation(self, call: Call) -> Match | None:
        """Raise NotFoundError for a call in the vendor's form; None for any other call."""
        version, action = read_action(call)
        form = match_url_form(call.raw_path)
        if form is not None:
            version, action = form["version"], f"{form['product']}/{form['action']}"
        if not version and not action:
            return None
        message = f"Specified api {action!r} of version {version!r} is not found, please check your url and method."
        raise NotFoundError(message, "path", action)


GATEWAY = Gateway(
    name="alibaba",
    title="Alibaba Cloud, any other product",
    version="",
    operations=(),
    gaps=(
        exclude(
            "Products and versions that this page does not name", "They are refused with `InvalidAction.NotFound`."
        ),
    ),
)
