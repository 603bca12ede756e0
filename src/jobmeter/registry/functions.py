"""Functions of ours that SQL calls, with one meaning in both databases.

- ``jobmeter_fold(text)``: the text without regard to case, as ``str.casefold`` gives it. Databases fold letters
  differently, SQLite only those of ASCII.
- ``jobmeter_label(labels, name)``: the text of that label, NULL where there is none.
- ``jobmeter_meets(extra, dialect, key, operator, values)``: whether a job's field of a dialect fits. It is a text, a
  number (as written in JSON) or a list of texts of which one has to; ``values`` is a JSON array.
- ``Part(text, name)``: the JSON of an object's part of that name, NULL where there is none.

SQLite calls Python; PostgreSQL has them from a migration. There NUL, which PostgreSQL keeps in no text, reads as the
replacement character.
"""

import sqlite3
import sys
from collections.abc import Sequence
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

NUL = "\N{REPLACEMENT CHARACTER}"


class Position(FunctionElement[int]):
    """Where in the first text the second one begins, counted from 1; 0 where it is not."""

    type = sa.Integer()
    inherit_cache = True
    name = "position"


@compiles(Position, "sqlite")
def _instr(element: Position, compiler: SQLCompiler, **options: Any) -> str:  # noqa: ANN401 - the hook's shape
    return f"instr({compiler.process(element.clauses, **options)})"


@compiles(Position, "postgresql")
def _strpos(element: Position, compiler: SQLCompiler, **options: Any) -> str:  # noqa: ANN401 - the hook's shape
    return f"strpos({compiler.process(element.clauses, **options)})"


class Part(FunctionElement[str]):
    """The JSON of the part of that name of an object, itself JSON; NULL where there is none."""

    type = sa.Text()
    inherit_cache = True
    name = "part"


@compiles(Part, "sqlite")
def _python_part(element: Part, compiler: SQLCompiler, **options: Any) -> str:  # noqa: ANN401 - the hook's shape
    return f"jobmeter_part({compiler.process(element.clauses, **options)})"


@compiles(Part, "postgresql")
def _json_part(element: Part, compiler: SQLCompiler, **options: Any) -> str:  # noqa: ANN401 - the hook's shape
    text, name = (compiler.process(clause, **options) for clause in element.clauses)
    return f"CAST(jobmeter_json({text}) -> {name} AS text)"


def contains(text: sa.ColumnElement[str], part: str) -> sa.ColumnElement[bool]:
    """The text holds that part, as it is written. LIKE would refuse a long one."""
    return Position(text, sa.literal(part)) > 0


def contains_folded(text: sa.ColumnElement[str], part: str) -> sa.ColumnElement[bool]:
    """The text holds that part, without regard to case."""
    return contains(sa.func.jobmeter_fold(text, type_=sa.Text()), clean(part).casefold())


def clean(text: str) -> str:
    """The text as it is stored: without what a database cannot keep."""
    if text.isascii() and "\0" not in text:
        return text
    return text.replace("\0", NUL).encode("utf-8", "replace").decode()


def install(connection: sqlite3.Connection) -> None:
    """Make the functions known to a connection of SQLite."""
    connection.create_function("jobmeter_fold", 1, _fold, deterministic=True)
    connection.create_function("jobmeter_label", 2, _label, deterministic=True)
    connection.create_function("jobmeter_meets", 5, _meets, deterministic=True)
    connection.create_function("jobmeter_part", 2, _part, deterministic=True)


def _fold(text: str | None) -> str | None:
    return None if text is None else text.casefold()


_LABELS = msgspec.json.Decoder(dict[str, str])
_PARTS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_VALUES = msgspec.json.Decoder(list[Any])


def _label(labels: str | None, name: str) -> str | None:
    found = _LABELS.decode(labels).get(name) if labels else None
    return None if found is None else found.replace("\0", NUL)


def _meets(extra: str | None, dialect: str, key: str, operator: str, values: str) -> bool:
    raw = _part(_part(extra, dialect), key)
    return raw is not None and fits(raw.encode(), operator, _VALUES.decode(values))


def _part(text: str | None, name: str) -> str | None:
    if text is None or not text.startswith("{"):
        return None
    found = _PARTS.decode(text).get(name)
    return None if found is None else bytes(found).decode()


def fits(raw: bytes, operator: str, given: Sequence[Any]) -> bool:
    """Whether the JSON of a field fits: ``jobmeter_meets`` for one that is there, its values already folded."""
    value = msgspec.json.decode(raw)
    if operator == "between":
        low, high = given
        return _is_number(value) and (low is None or value >= low) and (high is None or value <= high)
    texts = _texts(value, raw)
    if operator == "contains":
        folded = [text.casefold() for text in texts]
        return any(part in text for text in folded for part in given)
    return any(text in given for text in texts)


def is_odd(raw: bytes) -> bool:
    """Whether equality with a text cannot be told from the JSON alone: a list, or a text with an escape in it."""
    return raw[:1] in b"[{" or b"\\" in raw


def _texts(value: object, raw: bytes) -> list[str]:
    if _is_number(value):
        return [raw.decode()]
    found = value if isinstance(value, list) else [value]
    return [one.replace("\0", NUL) for one in found if isinstance(one, str)]


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def postgresql_functions() -> list[str]:
    """The statements that make the functions in PostgreSQL."""
    return [_FOLD.format(folded=_folded()), _JSON, _LABEL, _TEXTS, _MEETS]


def _folded() -> str:
    """An expression for ``str.casefold`` of ``given``: letters that become one letter, then those that become more."""
    one: list[tuple[str, str]] = []
    more: list[tuple[str, str]] = []
    for number in range(128, sys.maxunicode + 1):
        letter = chr(number)
        folded = letter.casefold()
        if folded != letter:
            (one if len(folded) == 1 else more).append((letter, folded))
    before, after = ("".join(pair[side] for pair in one) for side in (0, 1))
    text = f"""translate(lower(given COLLATE "C"), '{before}', '{after}')"""
    for letter, folded in more:
        text = f"replace({text}, '{letter}', '{folded}')"
    return text


_FOLD = """
CREATE OR REPLACE FUNCTION jobmeter_fold(given text) RETURNS text LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $body$
SELECT CASE WHEN octet_length(given) = char_length(given) THEN lower(given COLLATE "C") ELSE {folded} END
$body$
"""
# An escaped NUL, which is one only behind an even number of backslashes, cannot be turned into a text.
_JSON = r"""
CREATE OR REPLACE FUNCTION jobmeter_json(given text) RETURNS json LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $body$
SELECT CASE WHEN strpos(given, '\u0000') = 0 THEN given
            ELSE regexp_replace(given, '(?<!\\)((\\\\)*)\\u0000', '\1\\ufffd', 'g') END::json
$body$
"""
_LABEL = """
CREATE OR REPLACE FUNCTION jobmeter_label(labels text, name text) RETURNS text
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $body$
SELECT jobmeter_json(labels) ->> name
$body$
"""
_TEXTS = """
CREATE OR REPLACE FUNCTION jobmeter_texts(found json) RETURNS SETOF text
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $body$
SELECT found #>> '{}' WHERE json_typeof(found) IN ('string', 'number')
UNION ALL
SELECT one #>> '{}' FROM json_array_elements(CASE WHEN json_typeof(found) = 'array' THEN found ELSE '[]' END) AS one
WHERE json_typeof(one) = 'string'
$body$
"""
_MEETS = """
CREATE OR REPLACE FUNCTION jobmeter_meets(extra text, dialect text, key text, operator text, given text)
RETURNS boolean LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $body$
DECLARE
    found json := jobmeter_json(extra) -> dialect -> key;
    number numeric; low numeric; high numeric;
BEGIN
    IF found IS NULL THEN
        RETURN false;
    ELSIF operator = 'between' THEN
        IF json_typeof(found) <> 'number' THEN
            RETURN false;
        END IF;
        low := given::json ->> 0;
        high := given::json ->> 1;
        number := found #>> '{}';
        RETURN (low IS NULL OR number >= low) AND (high IS NULL OR number <= high);
    ELSIF operator = 'contains' THEN
        RETURN EXISTS (SELECT 1 FROM jobmeter_texts(found) AS held, json_array_elements_text(given::json) AS part
                       WHERE strpos(jobmeter_fold(held), part) > 0);
    END IF;
    RETURN EXISTS (SELECT 1 FROM jobmeter_texts(found) AS held, json_array_elements_text(given::json) AS wanted
                   WHERE held = wanted);
END
$body$
"""
