"""The further demands of a listing as SQL: always with bound parameters, whatever the texts are."""

from collections.abc import Sequence

import msgspec
import sqlalchemy as sa
from msgspec.structs import replace

from jobmeter.errors import InvalidRequestError
from jobmeter.model.job import Condition, Operator
from jobmeter.registry.functions import Part, clean, contains, contains_folded
from jobmeter.registry.schema import jobs, replicas

MAX_CONDITIONS = 50
MAX_VALUES = 1_000

_INT64 = 2**63 - 1
_column = jobs.c
_TEXTS = {
    name: _column[name]
    for name in ("id", "name", "type", "user", "project", "resource_group", "workspace", "command", "error")
}
_Found = sa.ColumnElement[bool]


def conditions(given: Sequence[Condition], now_ms: int) -> list[_Found]:
    """What all of them demand.

    Raises InvalidRequestError (field ``conditions``) for a field that there is not, or values that do not suit it.
    """
    if len(given) > MAX_CONDITIONS:
        raise _wrong(f"a listing may have {MAX_CONDITIONS} conditions, this one has {len(given)}")
    return [_condition(one, now_ms) if not one.otherwise else _either(one, now_ms) for one in given]


def both(one: Condition) -> tuple[Condition, Condition, Condition]:
    """A condition with two fields as three: the first field fits, the first field is there, the other field fits.

    That of ``not in`` is as that of ``in``: the caller negates what the three give together. Raises InvalidRequestError
    (field ``conditions``) for a field that is neither a text nor ``extra``.
    """
    for name in (one.field, one.otherwise):
        if name not in _TEXTS and not name.startswith("extra."):
            raise _wrong(f"{name[:100]!r} cannot stand for another field")
    operator = Operator.IN if one.operator is Operator.NOT_IN else one.operator
    fits = Condition(one.field, operator, one.values)
    # Every text holds the empty one; a text of a job that is empty is not there.
    there = Condition(one.field, Operator.NOT_IN if one.field in _TEXTS else Operator.CONTAINS, ("",))
    return fits, there, replace(fits, field=one.otherwise)


def _either(one: Condition, now_ms: int) -> _Found:
    fits, there, other = (_condition(part, now_ms) for part in both(one))
    found = sa.or_(sa.and_(there, fits), sa.and_(sa.not_(there), other))
    return sa.not_(found) if one.operator is Operator.NOT_IN else found


def duration(now_ms: int) -> sa.ColumnElement[int]:
    """How long a job took, or has taken until now, in milliseconds; -1 for one that has not started."""
    end = sa.case((_column.end_sort < 0, sa.literal(now_ms, sa.BigInteger)), else_=_column.end_sort)
    length = end - _column.start_sort
    return sa.case(
        (_column.start_sort < 0, sa.literal_column("-1")), (length < 0, sa.literal_column("0")), else_=length
    )


def _condition(one: Condition, now_ms: int) -> _Found:
    if len(one.values) > MAX_VALUES:
        raise _wrong(f"a condition may have {MAX_VALUES} values, that on {_shown(one)} has {len(one.values)}")
    if one.operator is Operator.BETWEEN and len(one.values) != 2:
        raise _wrong(f"between on {_shown(one)} takes two values, not {len(one.values)}")
    if one.field in _TEXTS:
        return _of_text(one, _TEXTS[one.field])
    numbers = {
        "created": _column.created_sort,
        "start": _column.start_sort,
        "end": _column.end_sort,
        "duration": duration(now_ms),
    }
    if one.field in numbers:
        return _of_number(one, numbers[one.field])
    if one.field == "node":
        return _of_node(one)
    kind, _, name = one.field.partition(".")
    if kind == "labels" and name:
        return _of_label(one, clean(name))
    dialect, _, key = name.partition(".")
    if kind == "extra" and dialect and key:
        return _of_extra(one, [clean(dialect), *map(clean, key.split("/"))])
    raise _wrong(f"there is no field {_shown(one)} to list jobs by")


def _of_text(one: Condition, text: sa.ColumnElement[str]) -> _Found:
    values = text_values(one)
    if one.operator is Operator.CONTAINS:
        return sa.or_(sa.false(), *(contains_folded(text, value) for value in values))
    return text.not_in(values) if one.operator is Operator.NOT_IN else text.in_(values)


def _of_node(one: Condition) -> _Found:
    if one.operator is Operator.CONTAINS:
        raise _wrong("a node is compared by its whole name")
    same_job = sa.and_(replicas.c.project == _column.project, replicas.c.job == _column.id)
    there = sa.exists().where(same_job, replicas.c.node.in_(text_values(one)))
    return sa.not_(there) if one.operator is Operator.NOT_IN else there


def _of_label(one: Condition, name: str) -> _Found:
    label = sa.func.jobmeter_label(_column.labels, name, type_=sa.Text())
    if one.operator is Operator.NOT_IN:
        return sa.or_(label.is_(None), _of_text(one, label))
    # Most jobs do not have the label at all, which their text shows sooner than reading it.
    return sa.and_(contains(sa.func.coalesce(_column.labels, ""), _key(name)), _of_text(one, label))


def extra_values(one: Condition) -> Sequence[str | int | None]:
    """What a field of a vendor is compared with: bounds, else texts, folded where they are looked for inside of it."""
    if one.operator is Operator.BETWEEN:
        return number_values(one)
    values = text_values(one)
    return [value.casefold() for value in values] if one.operator is Operator.CONTAINS else values


def _of_extra(one: Condition, path: Sequence[str]) -> _Found:
    values = extra_values(one)
    operator = "in" if one.operator is Operator.NOT_IN else one.operator.value
    inside: sa.ColumnElement[str] = _column.extra
    for name in path[:-2]:
        inside = Part(inside, sa.literal(name))
    given = msgspec.json.encode(values).decode()
    fits = sa.func.jobmeter_meets(inside, *path[-2:], operator, given, type_=sa.Boolean())
    has = contains(sa.func.coalesce(_column.extra, ""), _key(path[-1]))
    return sa.not_(sa.and_(has, fits)) if one.operator is Operator.NOT_IN else sa.and_(has, fits)


def _of_number(one: Condition, number: sa.ColumnElement[int]) -> _Found:
    # A time that is not known is -1.
    known = number >= 0
    if one.operator is Operator.BETWEEN:
        low, high = number_values(one)
        bounds = [known]
        if low is not None:
            bounds.append(number >= low)
        if high is not None:
            bounds.append(number <= high)
        return sa.and_(*bounds)
    if one.operator is Operator.CONTAINS:
        raise _wrong(f"{_shown(one)} is a number: it contains nothing")
    values = number_values(one)
    if None in values:
        raise _wrong(f"{_shown(one)} is compared with whole numbers")
    if one.operator is Operator.NOT_IN:
        return sa.or_(number < 0, number.not_in(values))
    return sa.and_(known, number.in_(values))


def text_values(one: Condition) -> list[str]:
    """The texts that a condition names, as they are stored. Raises InvalidRequestError for what is none."""
    if one.operator is Operator.BETWEEN:
        raise _wrong(f"{_shown(one)} is a text: it lies between nothing")
    if None in one.values:
        raise _wrong(f"{_shown(one)} is compared with texts")
    return [clean(str(value)) for value in one.values]


def number_values(one: Condition) -> list[int | None]:
    """The numbers that a condition names, within 64 bits. Raises InvalidRequestError for what is none."""
    if any(isinstance(value, str) for value in one.values):
        raise _wrong(f"{_shown(one)} is compared with whole numbers")
    return [max(-_INT64, min(value, _INT64)) if isinstance(value, int) else None for value in one.values]


def _key(name: str) -> str:
    """How a key of that name is written in the stored JSON."""
    return f"{msgspec.json.encode(name).decode()}:"


def _shown(one: Condition) -> str:
    return repr(one.field[:100])


def _wrong(message: str) -> InvalidRequestError:
    return InvalidRequestError(message, "conditions")
