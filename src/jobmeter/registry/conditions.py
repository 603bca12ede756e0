"""Checks the conditions of a listing: the one definition of every condition, wherever its values are read from."""

from collections.abc import Sequence
from typing import Any

import msgspec

from jobmeter.errors import InvalidRequestError
from jobmeter.model.finding import Severity
from jobmeter.model.job import Condition, JobFilter, Operator
from jobmeter.registry.statements import NUL, clean_text

MAX_CONDITIONS = 50
MAX_VALUES = 1_000
TEXTS = frozenset({"id", "name", "type", "user", "project", "resource_group", "workspace", "command", "error"})
TIMES = {"created": "created_sort", "start": "start_sort", "end": "end_sort"}
"""Fields that are times, and the column of each."""
FINDING, OPEN_FINDING = "finding", "open_finding"
"""Fields of findings: all of a job, and the open ones of running jobs."""
FINDINGS = frozenset({FINDING, OPEN_FINDING})
TAG = "tag"
RELATED = frozenset({"node", TAG, *FINDINGS})
"""Fields with any number of values for a job, in tables of their own."""
SORTS = (
    *("created", "start", "end", "id", "name", "project", "type", "user", "resource_group", "workspace", "updated"),
    *("duration", "state", "active"),
)
"""Names by which a listing may be sorted; ``active``: running, then queued, then all others, each by creation."""

Field = tuple[str, ...]
"""``(NAME,)``, ``("labels", NAME)`` or ``("extra", DIALECT, KEY)``, then the keys of objects inside."""

_INT64 = 2**63 - 1
_FEW = 8
"""Number of texts up to which a document is searched for them before it is parsed."""
_PARTS = msgspec.json.Decoder(dict[str, msgspec.Raw])


class Predicate(msgspec.Struct, frozen=True):
    """A condition on an existing field with suitable values.

    ``operator`` is never ``not in``: ``negated`` inverts the whole, ``otherwise`` included. Texts are in their stored
    form, and folded for ``contains``; numbers are within 64 bits.
    """

    field: Field
    operator: Operator
    texts: Sequence[str] = ()
    numbers: Sequence[int | None] = ()
    negated: bool = False
    otherwise: "Predicate | None" = None

    @property
    def presence(self) -> "Predicate":
        """Predicate for the jobs that have the field.

        An empty text counts as absent, and so do other types inside ``extra``.
        """
        if self.field[0] in TEXTS:
            return Predicate(self.field, Operator.IN, ("",), negated=True)
        return Predicate(self.field, Operator.CONTAINS, ("",))

    def fits(self, value: Any, written: str) -> bool:  # noqa: ANN401 - whatever JSON has
        """Return True if a value meets it, before ``negated``.

        ``written`` is its JSON. A list needs one text that fits.
        """
        if self.operator is Operator.BETWEEN:
            low, high = self.numbers
            return _is_number(value) and (low is None or value >= low) and (high is None or value <= high)
        if isinstance(value, str):
            return self.fits_text(value.replace("\0", NUL))
        return any(map(self.fits_text, _texts(value, written)))

    def fits_text(self, text: str) -> bool:
        """Return True if a text meets it, before ``negated``."""
        if self.operator is Operator.CONTAINS:
            folded = text.casefold()
            return any(map(folded.__contains__, self.texts))
        return text in self.texts

    def fits_document(self, text: str, path: Field) -> bool:
        """Check a stored document. Most documents are not parsed, because they lack the field or the texts."""
        return self._may_fit(text, path) and self.fits_json(text.encode(), path)

    def _may_fit(self, text: str, path: Field) -> bool:
        """Return False if a document without escapes lacks a name of the path or, for a few texts, all of these."""
        if "\\" in text:
            return True
        if not all(map(text.__contains__, path)):
            return False
        if self.operator is Operator.BETWEEN or len(self.texts) > _FEW:
            return True
        within = text.casefold() if self.operator is Operator.CONTAINS else text
        return any(map(within.__contains__, self.texts))

    def fits_json(self, document: bytes, path: Field) -> bool:
        """Return True if the value at that path of a JSON document meets it, before ``negated``."""
        for name in path:
            part = _PARTS.decode(document).get(name) if document[:1] == b"{" else None
            if part is None:
                return False
            document = bytes(part)
        return self.fits(msgspec.json.decode(document), document.decode())


def check(question: JobFilter) -> list[Predicate]:
    """Return the checked conditions of a query.

    Raises InvalidRequestError for an unknown sort, a negative page, or (field ``conditions``) an unknown field or
    unsuitable values.
    """
    if question.sort not in SORTS:
        raise InvalidRequestError(f"sort {question.sort[:64]!r} is not one of {', '.join(SORTS)}", "sort")
    for field in ("offset", "limit"):
        if not 0 <= getattr(question, field) < 2**31:
            raise InvalidRequestError(f"{field} must be from 0 to 2147483647", field)
    if len(question.conditions) > MAX_CONDITIONS:
        raise _make_condition_error(
            f"a listing may have at most {MAX_CONDITIONS} conditions, this one has {len(question.conditions)}"
        )
    return [_predicate(one) for one in question.conditions]


def _predicate(one: Condition) -> Predicate:
    if len(one.values) > MAX_VALUES:
        raise _make_condition_error(
            f"the condition on {_quote_field(one)} may have at most {MAX_VALUES} values, not {len(one.values)}"
        )
    if one.operator is Operator.BETWEEN and len(one.values) != 2:
        raise _make_condition_error(f"between on {_quote_field(one)} takes two values, not {len(one.values)}")
    negated = one.operator is Operator.NOT_IN
    operator = Operator.IN if negated else one.operator
    otherwise = None
    if one.otherwise:
        for name in (one.field, one.otherwise):
            if name not in TEXTS and not name.startswith("extra."):
                raise _make_condition_error(f"{name[:100]!r} cannot be the alternative of another field")
        otherwise = _predicate(Condition(one.otherwise, operator, one.values))
    field = _field(one)
    if one.field in TIMES or one.field == "duration":
        return Predicate(field, operator, numbers=_times(one), negated=negated)
    if one.operator is Operator.BETWEEN and field[0] == "extra":
        return Predicate(field, operator, numbers=_numbers(one), otherwise=otherwise)
    texts = _names(one) if one.field in RELATED else _texts_of(one)
    if one.operator is Operator.CONTAINS:
        texts = [text.casefold() for text in texts]
    return Predicate(field, operator, texts, negated=negated, otherwise=otherwise)


def _field(one: Condition) -> Field:
    if one.field in TEXTS or one.field in TIMES or one.field in RELATED or one.field == "duration":
        return (one.field,)
    kind, _, name = one.field.partition(".")
    if kind == "labels" and name:
        return kind, clean_text(name)
    dialect, _, key = name.partition(".")
    if kind == "extra" and dialect and key:
        return kind, clean_text(dialect), *map(clean_text, key.split("/"))
    raise _make_condition_error(f"there is no field {_quote_field(one)} to list jobs by")


def _times(one: Condition) -> list[int | None]:
    if one.operator is Operator.CONTAINS:
        raise _make_condition_error(f"{_quote_field(one)} is a number: contains works on texts only")
    values = _numbers(one)
    if one.operator is not Operator.BETWEEN and None in values:
        raise _make_condition_error(f"{_quote_field(one)} is compared with whole numbers")
    return values


def _names(one: Condition) -> list[str]:
    if one.operator is Operator.CONTAINS:
        how = "its whole name" if one.field not in FINDINGS else "its severity and rule"
        raise _make_condition_error(f"a {one.field} is compared by {how}")
    names = _texts_of(one)
    for severity in [name.partition("/")[0] for name in names] if one.field in FINDINGS else []:
        if severity and severity not in set(Severity):
            raise _make_condition_error(f"{severity[:64]!r} is not one of {', '.join(Severity)}")
    return names


def _texts_of(one: Condition) -> list[str]:
    if one.operator is Operator.BETWEEN:
        raise _make_condition_error(f"{_quote_field(one)} is a text: between works on numbers and times only")
    if None in one.values:
        raise _make_condition_error(f"{_quote_field(one)} is compared with texts")
    return [clean_text(str(value)) for value in one.values]


def _numbers(one: Condition) -> list[int | None]:
    if any(isinstance(value, str) for value in one.values):
        raise _make_condition_error(f"{_quote_field(one)} is compared with whole numbers")
    return [max(-_INT64, min(value, _INT64)) if isinstance(value, int) else None for value in one.values]


def _texts(value: object, written: str) -> list[str]:
    """Return the texts of a value for comparisons: a text, a number or truth value as written, the texts of a list."""
    if isinstance(value, int | float):
        return [written]
    found = value if isinstance(value, list) else [value]
    return [one.replace("\0", NUL) for one in found if isinstance(one, str)]


def _is_number(value: Any) -> bool:  # noqa: ANN401 - whatever JSON has
    return isinstance(value, int | float) and not isinstance(value, bool)


def _quote_field(one: Condition) -> str:
    return repr(one.field[:100])


def _make_condition_error(message: str) -> InvalidRequestError:
    return InvalidRequestError(message, "conditions")
