"""A product of Alibaba Cloud as a dialect: its tables, and the forms in which a call names an operation.

A call has one of three forms. Every SDK sends ``x-acs-version`` and ``x-acs-action`` (or, in the RPC style, ``Version``
and ``Action`` in the query). Without them, the path alone names the operation (curl with a token). The third is the URL
form. Paths alone collide between products, so the headers take precedence.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property

import msgspec

from jobmeter.access.call import Call
from jobmeter.access.signatures import ALIBABA, BEARER, Scheme
from jobmeter.dialects.alibaba.common import errors
from jobmeter.dialects.alibaba.common.operation import match_url_form
from jobmeter.dialects.base import Answer, Context, Gap, GapStatus, Match, Operation
from jobmeter.dialects.base.path_dialect import match_route
from jobmeter.dialects.base.routes import Routes, match_path
from jobmeter.dialects.base.view import View, ViewCall, offer_no_call
from jobmeter.errors import JobmeterError, NotFoundError

RPC_PATH = "/"
"""The path of every operation in the RPC style."""
_WRONG_METHOD = "This http method is not supported: {allowed}."
URL_FORM: Sequence[Scheme] = (BEARER,)
"""The credential schemes of the URL form."""


class Product(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """A product's tables; implements ``jobmeter.dialects.base.Dialect``.

    ``url_names`` are the product's names in the URL form. ``fields`` maps the fields of our errors to the product's.
    ``not_found`` has the product's codes for missing objects, by kind. ``forbidden`` is its own code for a forbidden
    call; if empty, the common code is used.
    """

    name: str
    title: str
    version: str
    operations: Sequence[Operation]
    gaps: Sequence[Gap] = ()
    url_names: Sequence[str] = ()
    fields: Mapping[str, str] = msgspec.field(default_factory=dict)
    not_found: Mapping[str, str] = msgspec.field(default_factory=lambda: errors.NOT_FOUND)
    forbidden: str = ""
    schemes: Sequence[Scheme] = ALIBABA
    view_call: Callable[[View], ViewCall | None] = offer_no_call

    @cached_property
    def _routes(self) -> Routes[Operation]:
        return Routes([operation for operation in self.operations if operation.path != RPC_PATH])

    def find_operation(self, call: Call) -> Match | None:
        """Return the operation of the call; None if the call is for another dialect."""
        form = match_url_form(call.raw_path)
        if form is not None:
            return self._match_url(form, call)
        version, action = read_action(call)
        if not version and not action:
            return match_route(self._routes, call.method, call.raw_path, _WRONG_METHOD)
        return self._match_operation_path(self._find_operation(action), call) if version == self.version else None

    def render_error(self, call: Call, context: Context, error: JobmeterError) -> Answer:
        """Render the error as the product's answer."""
        return errors.render(call, context, error, self.fields, self.not_found, self.forbidden)

    def _find_operation(self, action: str) -> Operation:
        for operation in self.operations:
            if operation.name == action:
                return operation
        raise NotFoundError(f"Specified api {action!r} is not found, please check your url and method.", "path", action)

    def _match_url(self, form: re.Match[str], call: Call) -> Match | None:
        if form["product"] not in self.url_names or form["version"] != self.version:
            return None
        operation = self._find_operation(form["action"])
        # The body is read later: it or the query has the parameters of the path.
        _check_method(operation, call)
        return Match(operation, {}, URL_FORM)

    def _match_operation_path(self, operation: Operation, call: Call) -> Match:
        values = match_path(operation.path, call.raw_path)
        if values is None:
            message = f"{operation.name} is found at {operation.path}, not at the path of this request."
            raise NotFoundError(message, "path", operation.name)
        _check_method(operation, call)
        return Match(operation, values)


def exclude(what: str, reason: str) -> Gap:
    """Return a gap for a part of the product's API that makes no sense here."""
    return Gap(what, reason, GapStatus.NEVER)


def read_action(call: Call) -> tuple[str, str]:
    """Return the version and the action of a call, from its headers or, in the RPC style, from its query."""
    version, action = call.get_header("x-acs-version"), call.get_header("x-acs-action")
    if call.raw_path == RPC_PATH:
        version, action = version or call.get_parameter("Version") or "", action or call.get_parameter("Action") or ""
    return version, action


def _check_method(operation: Operation, call: Call) -> None:
    """Check the method. An operation in the RPC style accepts GET and POST alike."""
    allowed = {"GET", "POST"} if operation.path == RPC_PATH else {operation.method}
    if call.method not in allowed:
        methods = ", ".join(sorted(allowed))
        message = f"This http method is not supported: {operation.name} takes {methods}."
        raise NotFoundError(message, "method", methods)
