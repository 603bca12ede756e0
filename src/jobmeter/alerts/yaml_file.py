"""YAML files of settings, with the line of each field for messages."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import yaml

from jobmeter.errors import ConfigurationError

LARGEST = 4 * 2**20
"""Largest file in bytes."""
_MOST_NODES = 200_000


class Field:
    """Value of a YAML file, with its file, path and line for messages."""

    def __init__(self, file: str, place: str, node: yaml.Node | None) -> None:
        self._file = file
        self._node = node
        self.place = place

    def fail(self, problem: str) -> NoReturn:
        """Raise ConfigurationError with file, line and place."""
        line = f":{self._node.start_mark.line + 1}" if self._node is not None else ""
        where = f" {self.place}:" if self.place else ""
        raise ConfigurationError(f"{self._file}{line}:{where} {problem}")

    def read_fields(self, allowed: Sequence[str], refused: Mapping[str, str] | None = None) -> dict[str, "Field"]:
        """Return the fields of a mapping. ``refused`` maps known, unsupported fields to the reason."""
        return {key: self._check(key, field, allowed, refused or {}) for key, field in self.read_pairs()}

    @staticmethod
    def _check(key: str, field: "Field", allowed: Sequence[str], refused: Mapping[str, str]) -> "Field":
        if key in refused:
            field.fail(refused[key])
        if key not in allowed:
            field.fail(f"this field is unknown; known are {', '.join(allowed)}")
        return field

    def read_pairs(self) -> Iterator[tuple[str, "Field"]]:
        """Yield the keys and values of a mapping; nothing for an empty value."""
        if self._is_empty():
            return
        if not isinstance(self._node, yaml.MappingNode):
            self.fail("a mapping of names to values is needed")
        found: set[str] = set()
        for key, value in self._node.value:
            if not isinstance(key, yaml.ScalarNode):
                self.fail("the names of fields must be texts")
            field = Field(self._file, f"{self.place}.{key.value}".lstrip("."), value)
            if key.value in found:
                field.fail("this field is given twice")
            found.add(key.value)
            yield key.value, field

    def read_items(self) -> list["Field"]:
        """Return the entries of a list; no entries for an empty value."""
        if self._is_empty():
            return []
        if not isinstance(self._node, yaml.SequenceNode):
            self.fail("a list is needed")
        return [Field(self._file, f"{self.place}[{number}]", one) for number, one in enumerate(self._node.value)]

    def read_text(self, most: int = 32_768) -> str:
        """Return a text, as written."""
        if not isinstance(self._node, yaml.ScalarNode):
            self.fail("a text is needed")
        value = str(self._node.value)
        if len(value) > most:
            self.fail(f"it has {len(value)} characters; the limit is {most}")
        return value

    def read_number(self, lowest: int, highest: int) -> int:
        """Return a whole number."""
        value = self.read_text(32)
        if not value.isdecimal() or not lowest <= int(value) <= highest:
            self.fail(f"a whole number from {lowest} to {highest} is needed")
        return int(value)

    def read_flag(self) -> bool:
        """Return true or false."""
        value = self.read_text(8).lower()
        if value not in {"true", "false"}:
            self.fail("true or false is needed")
        return value == "true"

    def read_texts(self, most: int = 100) -> dict[str, str]:
        """Return a mapping of names to texts."""
        found = {name: field.read_text() for name, field in self.read_pairs()}
        if len(found) > most:
            self.fail(f"it has {len(found)} entries; the limit is {most}")
        return found

    def _is_empty(self) -> bool:
        return self._node is None or (isinstance(self._node, yaml.ScalarNode) and self._node.tag.endswith(":null"))


def load_file(path: str) -> Field:
    """Return the content of a YAML file. Raises ConfigurationError with the line of an error."""
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise ConfigurationError(f"{path}: it cannot be read: {error.strerror}") from error
    return load_text(path, content)


def load_text(name: str, content: bytes) -> Field:
    """Return the content of a YAML text. Raises as ``load_file``."""
    if len(content) > LARGEST:
        raise ConfigurationError(f"{name}: it has {len(content)} bytes; the limit is {LARGEST}")
    try:
        node: Any = yaml.compose(content, yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
        raise ConfigurationError(f"{name}{line}: it is not valid YAML: {error.problem}") from error
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigurationError(f"{name}: it is not valid YAML: {str(error)[:200]}") from error
    _check_size(name, node)
    return Field(name, "", node)


def _check_size(name: str, node: Any) -> None:  # noqa: ANN401 - the parser's own classes
    """Refuse a file that contains itself, or that anchors make larger than it looks."""
    waiting, count = [node], 0
    while waiting:
        one = waiting.pop()
        count += 1
        if count > _MOST_NODES:
            raise ConfigurationError(f"{name}: it has more than {_MOST_NODES} values")
        if isinstance(one, yaml.MappingNode):
            waiting += [part for pair in one.value for part in pair]
        elif isinstance(one, yaml.SequenceNode):
            waiting += one.value
