"""Texts of labels and annotations, in the forms of Go's templates that rule files use.

``{{ $labels.x }}``, ``{{ $value }}``, ``humanize`` and its relatives, ``printf`` and pipes are rendered. Control
structures and queries are refused when a file is read.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from jobmeter.alerts.go_text import FORMATTERS, format_printf, go_value

MOST_RENDERED = 10_000
"""Most characters of a rendered text; the rest is cut off."""
_PIECE = re.compile(r"\{\{(-\s)?(.*?)(\s-)?\}\}", re.DOTALL)
_TOKEN = re.compile(
    r'\s*(?:(?P<string>"(?:[^"\\\n]|\\.)*"|`[^`]*`)|(?P<number>[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)'
    r"|(?P<name>[$.]?[A-Za-z_][\w.]*|\$)|(?P<sign>[|()]))"
)
_CONTROL = {"if", "else", "end", "range", "with", "define", "template", "block", "break", "continue"}
_QUERIES = {"query", "first", "label", "value", "sortByLabel", "strvalue"}
_DEEPEST, _LONGEST_NUMBER = 20, 100


class TemplateError(ValueError):
    """Error of an unsupported template; the message gives the reason."""


class _Label(msgspec.Struct, frozen=True):
    name: str


class _Value(msgspec.Struct, frozen=True):
    pass


class _Constant(msgspec.Struct, frozen=True):
    value: str | float | int


class _Call(msgspec.Struct, frozen=True):
    function: str
    arguments: "tuple[_Node, ...]"


_Node = _Label | _Value | _Constant | _Call


class Template(msgspec.Struct, frozen=True):
    """A parsed text: literal texts and expressions, in order."""

    parts: tuple[str | _Node, ...]

    def render(self, labels: Mapping[str, str], value: float) -> str:
        """Return the text for the labels and the value of a series, at most ``MOST_RENDERED`` characters."""
        texts = (one if isinstance(one, str) else go_value(_evaluate(one, labels, value)) for one in self.parts)
        return "".join(texts)[:MOST_RENDERED]


def parse_template(text: str) -> Template:
    """Return a template. Raises TemplateError for a form that is not supported."""
    parts: list[str | _Node] = []
    at, trim = 0, False
    for found in _PIECE.finditer(text):
        before = text[at : found.start()]
        before = before.lstrip() if trim else before
        parts.append(before.rstrip() if found[1] else before)
        at, trim = found.end(), bool(found[3])
        inner = found[2].strip()
        if not (inner.startswith("/*") and inner.endswith("*/")):
            parts.append(_Parser(inner).parse())
    rest = text[at:]
    if "{{" in rest:
        raise TemplateError("an expression in {{ is not closed by }}")
    parts.append(rest.lstrip() if trim else rest)
    return Template(tuple(one for one in parts if one != ""))


class _Parser:
    """Parser of one expression: commands joined by pipes, each a function and its arguments."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(self._split(text))
        self._at = 0
        self._depth = self._pipes = 0

    def _split(self, text: str) -> Sequence[tuple[str, str]]:
        found, at = [], 0
        while text[at:].strip():
            token = _TOKEN.match(text, at)
            if token is None:
                raise TemplateError(f"{{{{ {text[:80]} }}}} has a form that is not supported")
            found.append((str(token.lastgroup), token[str(token.lastgroup)]))
            at = token.end()
        return found

    def parse(self) -> _Node:
        node = self._parse_pipeline()
        if self._at < len(self._tokens):
            raise TemplateError(f"{{{{ {self._text[:80]} }}}} has a form that is not supported")
        return node

    def _parse_pipeline(self) -> _Node:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise TemplateError(f"brackets are nested more than {_DEEPEST} deep")
        node = self._parse_command(())
        while self._peek_token() == ("sign", "|"):
            self._at += 1
            self._pipes += 1
            if self._pipes > _DEEPEST:
                raise TemplateError(f"more than {_DEEPEST} pipes are in one expression")
            node = self._parse_command((node,))
        self._depth -= 1
        return node

    def _parse_command(self, piped: tuple[_Node, ...]) -> _Node:
        kind, word = self._peek_token() or ("", "")
        if kind == "name" and word[0] not in "$.":
            self._at += 1
            return _call(word, (*self._parse_operands(), *piped))
        operands = self._parse_operands()
        if len(operands) != 1 or piped:
            raise TemplateError(f"{{{{ {self._text[:80]} }}}} has a form that is not supported")
        return operands[0]

    def _parse_operands(self) -> tuple[_Node, ...]:
        found: list[_Node] = []
        while (token := self._peek_token()) is not None and token not in {("sign", "|"), ("sign", ")")}:
            kind, word = token
            self._at += 1
            if kind == "sign":
                found.append(self._parse_pipeline())
                if self._peek_token() != ("sign", ")"):
                    raise TemplateError("a bracket is not closed")
                self._at += 1
            else:
                found.append(_operand(kind, word))
        return tuple(found)

    def _peek_token(self) -> tuple[str, str] | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None


def _operand(kind: str, word: str) -> _Node:
    if kind == "string":
        return _Constant(word[1:-1] if word[0] == "`" else _decode_escapes(word))
    if kind == "number":
        return _Constant(_number(word))
    if word in {"$value", ".Value"}:
        return _Value()
    if word in {"$labels", ".Labels"}:
        return _Constant("$labels")
    for head in ("$labels.", ".Labels."):
        if word.startswith(head) and word.count(".") == head.count("."):
            return _Label(word.removeprefix(head))
    if word in {"true", "false"}:
        return _Constant(word)
    if word[0] not in "$.":
        return _call(word, ())
    raise TemplateError(f"{word} is unknown: use $labels.NAME or $value")


def _number(word: str) -> float | int:
    if re.search(r"[.eE]", word):
        return float(word)
    if len(word) > _LONGEST_NUMBER or not -(2**63) <= int(word) < 2**63:
        raise TemplateError(f"the number {word[:80]} does not fit into 64 bits")
    return int(word)


def _decode_escapes(word: str) -> str:
    try:
        found: str = msgspec.json.decode(word)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise TemplateError(f"the text {word[:80]} has an escape that is not supported") from None
    return found


def _call(name: str, arguments: tuple[_Node, ...]) -> _Node:
    if name in _CONTROL:
        raise TemplateError(f"{{{{ {name} }}}} is not supported: a text has no branches, loops and definitions")
    if name in _QUERIES:
        raise TemplateError(f"{name} is not supported: a text does not run queries")
    if name == "index":
        if len(arguments) == 2 and arguments[0] == _Constant("$labels") and isinstance(arguments[1], _Constant):
            return _Label(str(arguments[1].value))
        raise TemplateError('index is supported only as {{ index $labels "NAME" }}')
    if name == "printf":
        if not arguments:
            raise TemplateError("printf needs a format")
        return _Call(name, arguments)
    if name not in FORMATTERS:
        raise TemplateError(f"the function {name[:80]} is not known; known are printf, {', '.join(sorted(FORMATTERS))}")
    if len(arguments) != 1:
        raise TemplateError(f"{name} takes one argument, not {len(arguments)}")
    return _Call(name, arguments)


def _evaluate(node: _Node, labels: Mapping[str, str], value: float) -> Any:  # noqa: ANN401 - texts and numbers
    match node:
        case _Label(name):
            return labels.get(name, "")
        case _Value():
            return value
        case _Constant(constant):
            return constant
        case _Call(function, arguments):
            computed = [_evaluate(one, labels, value) for one in arguments]
            if function == "printf":
                return format_printf(str(computed[0]), computed[1:])
            formatter: Callable[[Any], str] = FORMATTERS[function]
            return formatter(computed[0])
