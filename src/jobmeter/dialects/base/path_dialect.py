"""A dialect whose operations are found by method and path."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from jobmeter.access.call import Call
from jobmeter.access.signatures import Scheme
from jobmeter.dialects.base import Answer, Context, Gap, Match, Operation
from jobmeter.dialects.base.routes import Routes
from jobmeter.dialects.base.view import View, ViewCall, offer_no_call
from jobmeter.errors import JobmeterError, NotFoundError


def match_route(routes: Routes[Operation], method: str, path: str, wrong_method: str) -> Match | None:
    """Return the operation of a method and a path; None for an unknown path.

    Raises NotFoundError if only other methods are allowed. Placeholders in ``wrong_method``: ``method``, ``allowed``.
    """
    found = routes.find(method, path)
    if found is not None:
        return Match(*found)
    if allowed := ", ".join(routes.list_methods(path)):
        raise NotFoundError(wrong_method.format(method=method[:20], allowed=allowed), "method", allowed)
    return None


@dataclass(kw_only=True)
class PathDialect:
    """A dialect whose operations are found by method and path. See ``Dialect``.

    ``wrong_method`` is the message if only other methods are ``allowed``, ``wrong_path`` for an unknown ``path``.
    ``owns`` returns True for a path of the dialect; without it an unknown path is never an error.
    """

    name: str
    title: str
    schemes: Sequence[Scheme]
    operations: Sequence[Operation]
    gaps: Sequence[Gap]
    render_error: Callable[[Call, Context, JobmeterError], Answer]
    wrong_method: str = "{method} is not allowed here"
    wrong_path: str = ""
    owns: Callable[[str], bool] | None = None
    view_call: Callable[[View], ViewCall | None] = offer_no_call

    def __post_init__(self) -> None:
        each = [(one, method) for one in self.operations for method in one.method.split(", ")]
        self._routes = Routes([replace(one, method=method) for one, method in each])

    def find_operation(self, call: Call) -> Match | None:
        """Return the operation of the call; None if the call is for another dialect."""
        path = call.raw_path
        if self.owns is not None and not self.owns(path):
            return None
        found = match_route(self._routes, call.method, path, self.wrong_method)
        if found is None and self.owns is not None:
            raise NotFoundError(self.wrong_path.format(path=path[:200]), "path")
        return found
