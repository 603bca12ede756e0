"""Search language for log lines: words, phrases, patterns, operators, and fields of a line.

A term matches a line that contains its words adjacent and in order, with any separators between them, in any letter
case: ``Xid`` and ``"page fault"``, which finds ``page-fault`` too. ``err*`` and ``er?or`` are patterns of a word.
``field:value`` compares a property of the line. Terms side by side must all match, as with AND. NOT binds more closely
than AND, AND more closely than OR, which is also written ``|``. Letter case of operators does not matter. A text that
is not part of the language is refused with the reason, so that it never silently means something else.
"""

import re

import msgspec

from jobmeter.errors import InvalidRequestError, LimitExceededError
from jobmeter.model.log_fields import CHOICES, FIELDS, make_field_condition, make_words_condition
from jobmeter.model.log_tree import And, LogQuery, Not, Or
from jobmeter.model.syslog import SEVERITIES, parse_severity_word

MAX_QUERY = 4_096
"""Longest query, in characters."""
MAX_TERMS = 64
"""Most terms of a query."""
MAX_DEPTH = 32
"""Deepest nesting of parentheses and NOT."""
MAX_WILDCARDS = 64
"""Most ``*`` and ``?`` of a query."""

_BLANK = re.compile(r"\s*")
_SIGN = re.compile(r"[()]|\|\|?|&&")
_SIGNS = {"|": "OR", "||": "OR", "&&": "AND"}
_OPERATORS = {"AND", "OR", "NOT"}
_FIELD = re.compile(r"(?P<name>[A-Za-z_]+)(?P<blank>\s*)(?P<compared>>=|<=|!=|==|=~|!~|[<>=:])")
_COMPARED = re.compile(r"\s*(?:>=|<=|!=|[<>])")
_PHRASE = re.compile(r'"(?P<text>(?:[^"\\]|\\.)*)"', re.DOTALL)
_ESCAPED = re.compile(r'\\(["\\])')
_WORD = re.compile(r'(?:(?!&&)[^\s()"|])+')
_VALUE = re.compile(r'[^\s()"|]+')
_REFUSED = (
    (re.compile(r'[-+!](?=[A-Za-z_"(])'), "+word, -word and !word are not supported: write NOT word"),
    (re.compile(r"/\S*(?:\.\*|[\[\]\\^$+{}])\S*/(?=[\s)]|$)"), "regular expressions are not supported: use * and ?"),
    (re.compile(r'[^\s()"|]*\w[~^][\d.]*(?=[\s)]|$)'), "fuzzy words and weights (word~, word^2) are not supported"),
)
"""Forms of other languages that would silently mean something else here."""
_QUOTE = "put text to be found literally in quotation marks"


def parse_log_query(text: str, field: str = "query") -> LogQuery | None:
    """Parse a query; None for an empty text. Raises InvalidRequestError naming ``field``."""
    if len(text) > MAX_QUERY:
        raise LimitExceededError(f"{field} may have at most {MAX_QUERY} characters, this one has {len(text)}", field)
    if not text.strip():
        return None
    try:
        return _Parser(text).parse()
    except LimitExceededError as error:
        raise LimitExceededError(f"{field} {error.message}", field) from None
    except InvalidRequestError as error:
        raise InvalidRequestError(f"{field} cannot be read: {error.message}", field) from None


def parse_severity(text: str) -> int:
    """Parse a severity to its number. Raises InvalidRequestError naming the field ``severity``."""
    severity = parse_severity_word(text)
    if severity is None:
        raise InvalidRequestError(f"severity {text[:40]!r} is not one of {', '.join(SEVERITIES)}", "severity")
    return severity


class _Token(msgspec.Struct, frozen=True):
    """Token that ends at ``end``.

    ``kind`` is ``(``, ``)``, an operator, ``field``, ``word``, ``phrase``, or empty at the end of the text.
    ``compared`` is the comparison of a field, or of a value in a group of values.
    """

    kind: str
    end: int
    text: str = ""
    compared: str = ":"


class _Parser:
    """Recursive descent over one text. ``group`` is the field whose values are in the parentheses, if any."""

    def __init__(self, text: str) -> None:
        self._text = text.rstrip()
        self._at = 0
        self._terms = 0
        self._wildcards = 0

    def parse(self) -> LogQuery:
        """Parse the whole text."""
        found = self._parse_or(0)
        if self._peek_token().kind:
            raise _make_query_error("a closing parenthesis has no opening one")
        return found

    def _parse_or(self, depth: int, group: str = "") -> LogQuery:
        parts = [self._parse_and(depth, group)]
        while (token := self._peek_token(group)).kind == "OR":
            self._at = token.end
            parts.append(self._parse_and(depth, group))
        return parts[0] if len(parts) == 1 else Or(tuple(parts))

    def _parse_and(self, depth: int, group: str) -> LogQuery:
        parts = [self._parse_condition(depth, group)]
        while (token := self._peek_token(group)).kind not in {"", "OR", ")"}:
            if token.kind == "AND":
                self._at = token.end
            elif group not in {"", "text"}:
                raise _make_query_error(f"a line has one {group}: put OR between the values in the parentheses")
            parts.append(self._parse_condition(depth, group))
        return parts[0] if len(parts) == 1 else And(tuple(parts))

    def _parse_condition(self, depth: int, group: str) -> LogQuery:
        if depth > MAX_DEPTH:
            raise LimitExceededError(f"may be nested at most {MAX_DEPTH} deep")
        token = self._peek_token(group)
        if token.kind in {"", "AND", "OR", ")"}:
            raise self._make_missing_error(token)
        self._at = token.end
        if token.kind == "NOT":
            return Not(self._parse_condition(depth + 1, group))
        if token.kind == "(":
            return self._close_parenthesis(self._parse_or(depth + 1, group))
        return self._parse_field(depth, token) if token.kind == "field" else self._parse_value(group, token)

    def _make_missing_error(self, token: _Token) -> InvalidRequestError:
        where = f"before {token.text}" if token.kind else "at the end"
        words = self._text.split()
        small = token.text.islower() or (words and words[-1] in {"and", "or", "not"})
        hint = f"; and, or, not are operators, {_QUOTE}" if small else ""
        return _make_query_error(f"a term is missing {where}{hint}")

    def _close_parenthesis(self, found: LogQuery) -> LogQuery:
        token = self._peek_token()
        if token.kind != ")":
            raise _make_query_error("an opening parenthesis has no closing one")
        self._at = token.end
        return found

    def _parse_field(self, depth: int, token: _Token) -> LogQuery:
        """Parse the condition of a field: one value, several with ``|`` between them, or a group."""
        value = self._peek_token(token.text)
        if value.kind == "(":
            if token.compared not in {":", "!="}:
                raise _make_query_error(f"{token.text}{token.compared} takes one value without parentheses")
            self._at = value.end
            found = self._close_parenthesis(self._parse_or(depth + 1, token.text))
            return Not(found) if token.compared == "!=" else found
        values = [self._parse_comparison(token, value)]
        while self._text.startswith("|", self._at) and _continues(self._text, self._at + 1):
            self._at += 1
            values.append(self._parse_comparison(token, self._peek_token(token.text)))
        found = values[0] if len(values) == 1 else Or(tuple(values))
        return Not(found) if token.compared == "!=" else found

    def _parse_comparison(self, field: _Token, value: _Token) -> LogQuery:
        if value.kind not in {"word", "phrase", *_OPERATORS} or value.text in {"|", "||", "&&"}:
            raise _make_query_error(f"{field.text}{field.compared} has no value")
        self._at = value.end
        compared = value.compared if field.compared in {":", "!="} else field.compared
        if field.compared != ":" and value.compared != ":":
            raise _make_query_error(f"{field.text}{field.compared}{value.compared} is not a comparison")
        return self._parse_value(field.text, msgspec.structs.replace(value, compared=compared))

    def _parse_value(self, field: str, token: _Token) -> LogQuery:
        """Parse the condition of a term, or of a value of a field."""
        literal = token.kind == "phrase"
        self._terms += 1
        self._wildcards += 0 if literal else token.text.count("*") + token.text.count("?")
        if self._terms > MAX_TERMS:
            raise LimitExceededError(f"may have at most {MAX_TERMS} terms")
        if self._wildcards > MAX_WILDCARDS:
            raise LimitExceededError(f"may have at most {MAX_WILDCARDS} of * and ?")
        if field:
            return make_field_condition(field, token.compared, token.text, literal=literal)
        return make_words_condition(token.text, literal=literal)

    def _peek_token(self, group: str = "") -> _Token:
        """Return the next token without consuming it."""
        text, at = self._text, _skip_blanks(self._text, self._at)
        if at >= len(text):
            return _Token("", at)
        sign = _SIGN.match(text, at)
        if sign is not None:
            return _Token(_SIGNS.get(sign[0], sign[0]), sign.end(), sign[0])
        if not group and (field := _field_at(text, at)) is not None:
            return field
        compared = _COMPARED.match(text, at) if group else None
        start = _skip_blanks(text, compared.end()) if compared else at
        how = compared[0].strip() if compared else ":"
        if text.startswith('"', start):
            phrase = _PHRASE.match(text, start)
            if phrase is None:
                raise _make_query_error("a quotation mark is not closed")
            return _Token("phrase", phrase.end(), _ESCAPED.sub(r"\1", phrase["text"]), how)
        word = (_VALUE if group else _WORD).match(text, start)
        if word is None:
            raise _make_query_error(f"{group} has no value to compare with")
        if word[0].upper() in _OPERATORS:
            return _Token(word[0].upper(), word.end(), word[0])
        if not group:
            _refuse_other_languages(text, at)
        return _Token("word", word.end(), word[0], how)


def _field_at(text: str, at: int) -> _Token | None:
    """Return the field at a position; None if there is only text."""
    found = _FIELD.match(text, at)
    if found is None:
        return None
    name, compared = found["name"], found["compared"]
    field = FIELDS.get(name.lower())
    if field is None:
        behind = text[found.end() : found.end() + 1]
        apart = bool(found["blank"]) or (compared == ":" and (not behind.strip() or behind == ")"))
        if compared == "=" or apart:
            return None  # "rank=3" and "error: text" are words
        raise _make_query_error(f"unknown field {name[:40]!r} ({CHOICES}); {_QUOTE}")
    if compared in {"=~", "!~"}:
        raise _make_query_error(f"{compared} is not supported: use {name}: or {name}!= with the patterns * and ?")
    return _Token("field", found.end(), field, ":" if compared in {"=", "=="} else compared)


def _continues(text: str, at: int) -> bool:
    """True if another value of the field before ``|`` follows directly: no blank, and no other field."""
    if text[at : at + 1].strip(" \t\n|") == "":
        return False
    found = _FIELD.match(text, at)
    return found is None or found["name"].lower() not in FIELDS


def _refuse_other_languages(text: str, at: int) -> None:
    for form, why in _REFUSED:
        if form.match(text, at):
            raise _make_query_error(f"{why}; {_QUOTE}")


def _skip_blanks(text: str, at: int) -> int:
    found = _BLANK.match(text, at)
    return at if found is None else found.end()


def _make_query_error(why: str) -> InvalidRequestError:
    return InvalidRequestError(why, "query")
