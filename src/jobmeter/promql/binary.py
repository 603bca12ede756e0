"""Binary operators: they match the series of both sides and combine their values."""

from collections import defaultdict
from collections.abc import Callable, Iterator

import numpy as np

from jobmeter.model.batch import Bools, Float64s
from jobmeter.promql.budget import EvaluationBudget
from jobmeter.promql.labels import Labels, drop_labels, format_labels, get_value, keep_labels, set_label
from jobmeter.promql.nodes import NAME, Binary, Cardinality, VectorMatching
from jobmeter.promql.values import QueryError, Scalar, Value, Vector, drop_absent, make_empty_vector, merge_rows

_ARITHMETIC: dict[str, Callable[[Float64s, Float64s], Float64s]] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": np.divide,
    "%": np.fmod,
    "^": np.power,
    "atan2": np.arctan2,
}
_COMPARISONS: dict[str, Callable[[Float64s, Float64s], Bools]] = {
    "==": np.equal,
    "!=": np.not_equal,
    ">": np.greater,
    "<": np.less,
    ">=": np.greater_equal,
    "<=": np.less_equal,
}

_NOT_EXPLICIT = "multiple matches for labels: many-to-one matching must be explicit (group_left/group_right)"
_NOT_UNIQUE = "multiple matches for labels: grouping labels must ensure unique matches"


def apply_operator(node: Binary, left: Value, right: Value, budget: EvaluationBudget) -> Value:
    """Return the value of an operator.

    Raises QueryError for an ambiguous match, LimitExceededError beyond the budget.
    """
    for side in (left, right):
        budget.spend(side.values.size if isinstance(side, Vector) else 1)
    with np.errstate(all="ignore"):
        match left, right:
            case Scalar(), Scalar():
                return Scalar(_numbers(node, left.values, right.values)[0])
            case Vector(), Scalar():
                return _combine_with_scalar(node, left, left.values, right.values[None, :])
            case Scalar(), Vector():
                return _combine_with_scalar(node, right, left.values[None, :], right.values)
            case Vector(), Vector() if node.operator in _SETS:
                return merge_rows(_SETS[node.operator](node.matching, left, right))
            case Vector(), Vector():
                return _vectors(node, left, right, budget)
            case _:
                pass
    raise QueryError(f"the operator {node.operator} does not work on texts")


def _numbers(node: Binary, left: Float64s, right: Float64s) -> tuple[Float64s, Bools | None]:
    """Return the values, and the mask of values that a filtering comparison retains; None without such a comparison."""
    if node.operator in _ARITHMETIC:
        return _ARITHMETIC[node.operator](left, right), None
    true = _COMPARISONS[node.operator](left, right)
    if node.as_bool:
        return true.astype(np.float64), None
    return np.broadcast_to(left, true.shape), true


def _keeps_name(node: Binary) -> bool:
    return node.operator in _COMPARISONS and not node.as_bool


def _combine_with_scalar(node: Binary, vector: Vector, left: Float64s, right: Float64s) -> Vector:
    values, stay = _numbers(node, left, right)
    if stay is not None:
        # The vector's own values pass the filter, whichever side they are on.
        return drop_absent(vector.replace_values(vector.values, vector.present & stay))
    return vector.transform(values)


def _signature(matching: VectorMatching) -> Callable[[Labels], Labels]:
    if matching.on:
        names = frozenset(matching.labels)
        return lambda labels: keep_labels(labels, names)
    ignored = {*matching.labels, NAME}
    return lambda labels: drop_labels(labels, ignored)


def _groups(vector: Vector, signature: Callable[[Labels], Labels]) -> dict[Labels, list[int]]:
    groups: defaultdict[Labels, list[int]] = defaultdict(list)
    for row, labels in enumerate(vector.labels):
        groups[signature(labels)].append(row)
    return groups


def _find_covered(matching: VectorMatching, vector: Vector, other: Vector) -> Bools:
    """Mark the times at which the other side has a row with the same matched labels, for each row."""
    signature = _signature(matching)
    groups = {one: other.present[rows].any(axis=0) for one, rows in _groups(other, signature).items()}
    covered = np.zeros(vector.present.shape, bool)
    for row, labels in enumerate(vector.labels):
        found = groups.get(signature(labels))
        if found is not None:
            covered[row] = found
    return covered


def _and(matching: VectorMatching, left: Vector, right: Vector) -> Vector:
    return drop_absent(left.replace_values(left.values, left.present & _find_covered(matching, left, right)))


def _unless(matching: VectorMatching, left: Vector, right: Vector) -> Vector:
    return drop_absent(left.replace_values(left.values, left.present & ~_find_covered(matching, left, right)))


def _or(matching: VectorMatching, left: Vector, right: Vector) -> Vector:
    others = drop_absent(right.replace_values(right.values, right.present & ~_find_covered(matching, right, left)))
    unnamed = [_find_unnamed(left), _find_unnamed(others)]
    return Vector(
        left.labels + others.labels,
        np.concatenate((left.values, others.values)),
        np.concatenate((left.present, others.present)),
        unnamed=np.concatenate(unnamed),
    )


def _find_unnamed(vector: Vector) -> Bools:
    return np.zeros(len(vector.labels), bool) if vector.unnamed is None else vector.unnamed


_SETS: dict[str, Callable[[VectorMatching, Vector, Vector], Vector]] = {"and": _and, "or": _or, "unless": _unless}


def _vectors(node: Binary, left: Vector, right: Vector, budget: EvaluationBudget) -> Vector:
    matching = node.matching
    swapped = matching.cardinality is Cardinality.ONE_TO_MANY
    many, one = (right, left) if swapped else (left, right)
    # Prometheus fills the side of many series with ``fill_left``, wherever it stands.
    fill_many, fill_one = matching.fill_left, matching.fill_right
    signature = _signature(matching)
    many_groups, one_groups = _groups(many, signature), _groups(one, signature)
    rows: list[tuple[Labels, Float64s, Bools, bool]] = []
    # A side without any series joins nothing, so the other one may be ambiguous.
    joined: Bools = np.logical_and(np.any(left.present, axis=0), np.any(right.present, axis=0))
    if fill_many is not None or fill_one is not None:
        joined[:] = True
    for group in dict.fromkeys((*many_groups, *one_groups)):
        ones = one_groups.get(group, [])
        _check_one_side(one, ones, joined, group, "left" if swapped else "right")
        pairs = _pairs(many, one, many_groups.get(group, []), ones, fill_many, fill_one)
        taken = np.zeros(many.present.shape[1], bool)
        for labels, other, unnamed, many_values, one_values, present in pairs:
            budget.spend(len(present))
            sides = (one_values, many_values) if swapped else (many_values, one_values)
            values, stay = _numbers(node, *sides)
            kept = present if stay is None else present & stay
            if matching.cardinality is Cardinality.ONE_TO_ONE:
                if (taken & present).any():
                    raise QueryError(_NOT_EXPLICIT)
                taken |= present
            if kept.any():
                base = labels if labels is not None else group
                rows.append((_result_labels(matching, base, other), values, kept, unnamed))
    if not rows:
        return make_empty_vector(many.values.shape[1])
    found = Vector(
        [row[0] for row in rows],
        np.stack([row[1] for row in rows]),
        np.stack([row[2] for row in rows]),
        unnamed=np.array([row[3] or not _keeps_name(node) for row in rows], bool),
    )
    try:
        return merge_rows(found)
    except QueryError:
        one_to_one = matching.cardinality is Cardinality.ONE_TO_ONE
        raise QueryError(_NOT_EXPLICIT if one_to_one else _NOT_UNIQUE) from None


_Pair = tuple[Labels | None, Labels, bool, Float64s, Float64s, Bools]


def _pairs(
    many: Vector,
    one: Vector,
    many_rows: list[int],
    one_rows: list[int],
    fill_many: float | None,
    fill_one: float | None,
) -> Iterator[_Pair]:
    """Yield the matching rows of one group: labels and values of both sides, and the times with both present."""
    columns = many.values.shape[1]
    uncovered = np.zeros(columns, bool)
    unnamed_many, unnamed_one = _find_unnamed(many), _find_unnamed(one)
    for row in many_rows:
        labels, unnamed = many.labels[row], bool(unnamed_many[row])
        for other in one_rows:
            present = many.present[row] & one.present[other]
            yield labels, one.labels[other], unnamed, many.values[row], one.values[other], present
        if fill_one is not None:
            covered = one.present[one_rows].any(axis=0) if one_rows else uncovered
            yield labels, (), unnamed, many.values[row], np.full(columns, fill_one), many.present[row] & ~covered
    if fill_many is not None:
        covered = many.present[many_rows].any(axis=0) if many_rows else uncovered
        for other in one_rows:
            present = one.present[other] & ~covered
            filled = np.full(columns, fill_many)
            yield None, one.labels[other], bool(unnamed_one[other]), filled, one.values[other], present


def _check_one_side(one: Vector, rows: list[int], joined: Bools, group: Labels, side: str) -> None:
    """Raise QueryError if several rows of a group have a value at a time at which the sides are joined."""
    if len(rows) > 1 and ((one.present[rows].sum(axis=0) > 1) & joined).any():
        pair = ", ".join(format_labels(one.labels[row]) for row in rows[:2])
        raise QueryError(
            f"found duplicate series for the match group {format_labels(group)} on the {side} hand-side of the "
            f"operation: [{pair}];many-to-many matching not allowed: matching labels must be unique on one side"
        )


def _result_labels(matching: VectorMatching, labels: Labels, other: Labels) -> Labels:
    if matching.cardinality is Cardinality.ONE_TO_ONE:
        names = set(matching.labels)
        return keep_labels(labels, names) if matching.on else drop_labels(labels, names)
    for name in matching.include:
        labels = set_label(labels, name, get_value(other, name))
    return labels
