"""Passes questions and results through msgspec, as between two processes, and checks that decoded values are equal."""

import importlib
import pkgutil
import sys
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, ForwardRef, TypeVar, get_args, get_origin

import msgspec
import numpy as np
from msgspec.structs import replace

import jobmeter
from jobmeter.access.principal import Principal, Scope
from jobmeter.dialects.base import drive
from jobmeter.model.question import Question
from jobmeter.query.execute import Executor
from jobmeter.server import commands
from jobmeter.server.services import Services

T = TypeVar("T")
PACKAGES = ("access", "dialects", "diagnose", "ingest", "model", "promql", "query", "server", "ship")
"""Packages whose modules can define questions."""


def question_types() -> list[type[Question[Any]]]:
    """Return every question type of the package by name."""
    for name in PACKAGES:
        package = importlib.import_module(f"jobmeter.{name}")
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    found: list[type[Any]] = [Question]
    for kind in found:
        found += [one for one in kind.__subclasses__() if one.__module__.startswith(f"{jobmeter.__name__}.")]
    return sorted(set(found) - {Question}, key=lambda kind: kind.__name__)


def result_type(kind: type) -> Any:
    """Return the result type of a question type."""
    for base in kind.__orig_bases__:  # type: ignore[attr-defined]
        if get_origin(base) is Question:
            (result,) = get_args(base)
            if isinstance(result, ForwardRef):
                return vars(sys.modules[kind.__module__])[result.__forward_arg__]
            return result
    raise TypeError(f"{kind} names no result")


class Border:
    """Border between two processes: each passing value becomes an equal value of new objects.

    An array passes as its bytes. A generator passes piece by piece, and is closed when its reader closes it.
    """

    def __init__(self) -> None:
        self._streams: list[Iterator[Any]] = []

    def cross(self, value: T, kind: Any) -> T:
        """Encode a value and decode it as ``type``. Raises the error of msgspec if the value has another type."""
        if get_origin(kind) is Iterator:
            return self._read(value, get_args(kind)[0])  # type: ignore[arg-type, return-value]
        data = msgspec.msgpack.encode(value, enc_hook=self._encode)
        made: T = msgspec.msgpack.decode(data, type=kind, dec_hook=self._decode)
        return made

    def question(self, question: T) -> T:
        """Pass a question through the border."""
        passed = without_caches(question)
        made = self.cross(passed, type(question))
        assert same(made, passed), f"{question} arrived as {made}"
        return made

    def result(self, question: Question[T], result: T) -> T:
        """Pass the result of a question through the border."""
        kind = result_type(type(question))
        made = self.cross(result, kind)
        assert isinstance(result, Iterator) or same(made, result), f"{result} arrived as {made}"
        return made

    def _encode(self, value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return [value.dtype.str, list(value.shape), value.tobytes()]
        if isinstance(value, Generator):
            self._streams.append(value)
            return len(self._streams) - 1
        if isinstance(value, Sequence):
            return list(value)
        raise NotImplementedError(f"{type(value)} cannot be encoded")

    def _decode(self, kind: Any, data: Any) -> Any:
        origin = get_origin(kind) or kind
        if origin is np.ndarray:
            dtype, shape, content = data
            return np.frombuffer(content, dtype).reshape(shape)
        if origin is Generator:
            return self._read(self._streams[data], get_args(kind)[0])
        raise NotImplementedError(f"{kind} cannot be decoded")

    def _read(self, pieces: Iterator[Any], kind: Any) -> Generator[Any]:
        try:
            for piece in pieces:
                yield self.cross(piece, kind)
        finally:
            if isinstance(pieces, Generator):
                pieces.close()


def without_caches(value: T) -> T:
    """Return a command without the cached properties of its batch, because each process computes them itself."""
    batch = getattr(value, "batch", None)
    if not isinstance(value, msgspec.Struct) or batch is None:
        return value
    cached = {name: None for name in batch.__struct_fields__ if name.startswith("existing_")}
    return replace(value, batch=replace(batch, **cached))


def same(one: Any, other: Any) -> bool:
    """Compare two values, including types without an equality. A list equals a tuple of the same members."""
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other, equal_nan=one.dtype.kind == "f")
    if isinstance(one, Generator):
        return isinstance(other, Generator)
    if isinstance(one, str | bytes):
        return bool(one == other)
    if isinstance(one, Mapping):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, Sequence):
        return len(one) == len(other) and all(map(same, one, other))
    names: Sequence[str] = ()
    if isinstance(one, msgspec.Struct):
        names = one.__struct_fields__
    elif is_dataclass(one):
        names = [field.name for field in fields(one)]
    if names:
        return type(one) is type(other) and all(same(getattr(one, name), getattr(other, name)) for name in names)
    return type(one) is type(other) and bool(one == other or (one != one and other != other))  # noqa: PLR0124 - NaN


class EncodingExecutor(Executor):
    """Executor behind a border: questions and results are encoded and decoded."""

    def run(self, question: Question[T], scope: Scope) -> T:
        border = Border()
        return border.result(question, super().run(border.question(question), scope))

    def answer_from_memory(self, question: Question[T], scope: Scope) -> T | None:
        border = Border()
        found = super().answer_from_memory(border.question(question), scope)
        return None if found is None else border.result(question, found)


def perform_encoded(services: Services, question: Question[T], principal: Principal, scope: Scope) -> T:
    """Execute a question or command as ``jobmeter.server.commands.perform`` does, behind a border."""
    border = Border()
    result: T = commands.perform(services, border.question(question), principal, scope)
    return border.result(question, result)


def drive_encoded(steps: Generator[Question[Any], Any, T], answer: Callable[[Question[Any]], Any]) -> T:
    """Run an operation to its end as ``jobmeter.dialects.base.drive`` does, behind a border."""

    def passed(question: Question[Any]) -> Any:
        border = Border()
        return border.result(question, answer(border.question(question)))

    return drive(steps, passed)
