"""The thresholds of rules: one file with the origin of each, and an operator's overrides."""

import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec

from jobmeter.errors import ConfigurationError, InvalidRequestError
from jobmeter.model.time import MINUTE, parse_duration

COMMON = "common"
_MOST_BYTES = 1024 * 1024


class Threshold(msgspec.Struct, frozen=True):
    """A number with its origin: a share, an amount, or milliseconds; ``text`` is its form in the file."""

    value: float
    text: str
    origin: str
    time: bool


Table = Mapping[str, Threshold]
Numbers = Mapping[str, float]


class Thresholds(Mapping[str, Numbers]):
    """The thresholds of each rule, including the common ones; times in milliseconds."""

    def __init__(self, tables: Mapping[str, Table]) -> None:
        self.tables = tables
        minute = tables[COMMON]["minute"].value / MINUTE
        self._numbers = {
            rule: {
                name: one.value * (minute if one.time and name != "minute" else 1.0)
                for name, one in {**tables[COMMON], **table}.items()
            }
            for rule, table in tables.items()
        }

    def __getitem__(self, rule: str) -> Numbers:
        return self._numbers.get(rule, self._numbers[COMMON])

    def __iter__(self) -> Iterator[str]:
        return iter(self._numbers)

    def __len__(self) -> int:
        return len(self._numbers)


def load(path: str = "", plugins: Mapping[str, Table] = MappingProxyType({})) -> Thresholds:
    """Return the shipped thresholds and the thresholds of ``plugins``, overridden by the operator's file, if any.

    Raises ConfigurationError naming the file and the entry that is wrong.
    """
    tables = {rule: dict(table) for rule, table in (*plugins.items(), *_read_shipped().items())}
    if path:
        for rule, table in _parse_toml(_read(path), path).items():
            if rule not in tables or not isinstance(table, dict):
                raise ConfigurationError(f"{path}: there are no thresholds of {rule!r} ({', '.join(tables)})")
            for name, value in table.items():
                tables[rule][name] = _override(tables, rule, name, value, path)
    return Thresholds(tables)


@cache
def _read_shipped() -> Mapping[str, Table]:
    text = files("jobmeter.diagnose").joinpath("thresholds.toml").read_text(encoding="utf-8")
    return {rule: make_table(rule, entries) for rule, entries in _parse_toml(text, "thresholds").items()}


def make_table(rule: str, entries: Mapping[str, Any]) -> dict[str, Threshold]:
    """Return the thresholds of a rule from entries in the form of the file. Raises ConfigurationError."""
    return {name: _threshold(value, f"{rule}.{name}") for name, value in entries.items()}


def _override(tables: Mapping[str, Table], rule: str, name: str, value: object, path: str) -> Threshold:
    before = tables[rule].get(name) or tables[COMMON].get(name)
    if before is None:
        raise ConfigurationError(f"{path}: {rule} has no threshold {name!r} ({', '.join(tables[rule])})")
    given = value if isinstance(value, dict) else {"value": value, "origin": path}
    found = _threshold({"origin": path, **given}, f"{path}: {rule}.{name}")
    if found.time != before.time:
        raise ConfigurationError(
            f"{path}: {rule}.{name} is {'a time such as 30s' if before.time else 'a number'}, not {found.text!r}"
        )
    return found


def _threshold(entry: Any, where: str) -> Threshold:  # noqa: ANN401 - a value of the file
    if not isinstance(entry, dict) or not {"value"} <= entry.keys() <= {"value", "origin"}:
        raise ConfigurationError(f"{where} is neither a value nor a table of value and origin")
    value, origin = entry["value"], str(entry.get("origin", ""))
    if isinstance(value, str):
        return Threshold(_milliseconds(value, where), value, origin, time=True)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e18:
        raise ConfigurationError(f"{where} must be a number that is not below 0, or a time such as 30s")
    return Threshold(float(value), f"{value:g}", origin, time=False)


def _milliseconds(text: str, where: str) -> float:
    if text.strip() in {"0", "0s", "0m"}:
        return 0.0
    try:
        return float(parse_duration(text, where))
    except InvalidRequestError as error:
        raise ConfigurationError(error.message) from error


def _read(path: str) -> str:
    try:
        content = Path(path).read_bytes()
        if len(content) > _MOST_BYTES:
            raise ConfigurationError(f"{path} has more than {_MOST_BYTES} bytes")
        return content.decode()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"the rules of {path} cannot be read: {error}") from error


def _parse_toml(text: str, where: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"{where} is not TOML: {error}") from error
