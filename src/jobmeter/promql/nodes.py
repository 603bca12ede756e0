"""The syntax of PromQL as frozen nodes. Durations and offsets are in milliseconds."""

from enum import StrEnum

import msgspec

NAME = "__name__"
"""The label that holds the name of a metric."""


class VectorMatch(StrEnum):
    """The comparison of a matcher."""

    EQUAL = "="
    NOT_EQUAL = "!="
    REGEX = "=~"
    NOT_REGEX = "!~"


class Matcher(msgspec.Struct, frozen=True, cache_hash=True):
    """A condition on one label; a missing label is the empty text. A regular expression matches the whole text."""

    label: str
    match: VectorMatch
    value: str


class Bound(StrEnum):
    """The ends of a query's range, as times of the ``@`` modifier."""

    START = "start"
    END = "end"


class Number(msgspec.Struct, frozen=True, cache_hash=True):
    """A number."""

    value: float


class Text(msgspec.Struct, frozen=True, cache_hash=True):
    """A string."""

    value: str


class VectorSelector(msgspec.Struct, frozen=True, kw_only=True, cache_hash=True):
    """Newest sample of each series that fulfils one of the ``alternatives``.

    With ``range_ms``, all samples of that range before the time of evaluation. ``at`` replaces the time of evaluation
    by a time in ms, or an end of the query's range. ``offset_ms`` moves it to the past.
    """

    alternatives: tuple[tuple[Matcher, ...], ...]
    range_ms: int = 0
    offset_ms: int = 0
    at: int | Bound | None = None

    @property
    def name(self) -> str:
        """Name of the selected metric; empty unless exactly one is selected."""
        if len(self.alternatives) != 1:
            return ""
        found = [one.value for one in self.alternatives[0] if one.label == NAME and one.match is VectorMatch.EQUAL]
        return found[0] if found else ""


class Subquery(msgspec.Struct, frozen=True, kw_only=True, cache_hash=True):
    """Values of ``inner`` at each step in the last ``range_ms``. ``step_ms`` 0 means the default step."""

    inner: "Node"
    range_ms: int
    step_ms: int = 0
    offset_ms: int = 0
    at: int | Bound | None = None


class Negation(msgspec.Struct, frozen=True, cache_hash=True):
    """The negative of each value."""

    inner: "Node"


class Cardinality(StrEnum):
    """Number of series on each side that share the matched labels."""

    ONE_TO_ONE = "one-to-one"
    MANY_TO_ONE = "many-to-one"
    ONE_TO_MANY = "one-to-many"
    MANY_TO_MANY = "many-to-many"


class VectorMatching(msgspec.Struct, frozen=True, kw_only=True, cache_hash=True):
    """Rule that matches the series of two sides: by ``labels`` only (``on``), or by all other labels.

    ``include`` are labels that the side with one series gives to the result. ``fill_left`` and ``fill_right`` are the
    values of a side without a series.
    """

    cardinality: Cardinality = Cardinality.ONE_TO_ONE
    on: bool = False
    labels: tuple[str, ...] = ()
    include: tuple[str, ...] = ()
    fill_left: float | None = None
    fill_right: float | None = None


class Binary(msgspec.Struct, frozen=True, kw_only=True, cache_hash=True):
    """Two sides joined by an operator. ``as_bool`` makes a comparison give 0 or 1."""

    operator: str
    left: "Node"
    right: "Node"
    as_bool: bool = False
    matching: VectorMatching = VectorMatching()


class Aggregation(msgspec.Struct, frozen=True, kw_only=True, cache_hash=True):
    """Series aggregated by groups with equal ``labels``, or with equal other labels (``without``)."""

    operator: str
    inner: "Node"
    parameter: "Node | None" = None
    without: bool = False
    labels: tuple[str, ...] = ()


class FunctionCall(msgspec.Struct, frozen=True, cache_hash=True):
    """Call of a function."""

    function: str
    arguments: "tuple[Node, ...]"


Node = Number | Text | VectorSelector | Subquery | Negation | Binary | Aggregation | FunctionCall


def list_children(node: Node) -> tuple[Node, ...]:
    """Return the child nodes."""
    match node:
        case Subquery(inner=inner) | Negation(inner=inner):
            return (inner,)
        case Binary(left=left, right=right):
            return left, right
        case Aggregation(inner=inner, parameter=parameter):
            return (inner,) if parameter is None else (parameter, inner)
        case FunctionCall(arguments=arguments):
            return arguments
        case _:
            return ()
