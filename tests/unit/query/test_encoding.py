"""Tests that every question and every result crosses the border between processes as an equal value."""

from collections.abc import Callable, Generator, Iterator
from typing import Any, get_origin

import msgspec.inspect as shapes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.encoding import Border, question_types, result_type, same

from jobmeter.model.batch import SampleBatch
from jobmeter.model.series import Series
from jobmeter.model.time import TimeRange

KINDS = question_types()
STREAMED = (Generator, Iterator)
"""Types whose pieces cross the border one by one."""
_NUMBERS = st.integers(0, 2**40)
_TEXTS = st.text(max_size=5)
_NAMES = st.text("abc", min_size=1, max_size=3)
_SERIES = st.builds(Series, _NAMES, project=_NAMES, job=_NAMES, replica=_NAMES, device=_NAMES)
_DEEPEST = 4


def _batch(size: int) -> SampleBatch:
    numbers = np.arange(size)
    return SampleBatch([Series("cpu.usage")], numbers.astype(np.uint32), numbers, numbers / 7)


SPECIAL: dict[Any, st.SearchStrategy[Any]] = {
    TimeRange: st.tuples(_NUMBERS, _NUMBERS).map(lambda ends: TimeRange(min(ends), max(ends))),
    Series: _SERIES,
    SampleBatch: st.integers(0, 5).map(_batch),
}
"""Values of the types that restrict their fields."""
SIMPLE: dict[Any, st.SearchStrategy[Any]] = {
    shapes.AnyType: _TEXTS,
    shapes.NoneType: st.none(),
    shapes.BoolType: st.booleans(),
    shapes.IntType: _NUMBERS,
    shapes.FloatType: st.floats(),
    shapes.StrType: _TEXTS,
    shapes.BytesType: st.binary(max_size=5),
}


def contents(shape: Any) -> list[Any]:
    """Return the types within a type."""
    names = ("item_type", "key_type", "value_type")
    found = [getattr(shape, name) for name in names if hasattr(shape, name)]
    found += [*getattr(shape, "item_types", ()), *getattr(shape, "types", ())]
    return found + [field.type for field in getattr(shape, "fields", ())]


def _structure(shape: Any, within: Any, most: int) -> st.SearchStrategy[Any]:
    named = zip(shape.fields, within, strict=True)
    return st.fixed_dictionaries({field.name: one for field, one in named if most or field.required}).map(
        lambda found: shape.cls(**found)
    )


def _pieces(some: Iterator[object]) -> Generator[object]:
    yield from some


def _custom(shape: Any, *_: Any) -> st.SearchStrategy[Any]:
    if shape.cls in STREAMED:
        return st.builds(iter, st.just(())).map(_pieces)
    if np.ndarray not in {shape.cls, get_origin(shape.cls)}:
        raise TypeError(f"{shape.cls} cannot be encoded")
    return st.lists(st.integers(0, 9), max_size=3).map(lambda found: np.array(found, np.int64))


def _list(_: Any, within: Any, most: int) -> st.SearchStrategy[Any]:
    return st.lists(within[0], max_size=most)


def _set(_: Any, within: Any, most: int) -> st.SearchStrategy[Any]:
    return st.frozensets(within[0], max_size=most)


COMPOSITE: dict[Any, Callable[[Any, Any, int], st.SearchStrategy[Any]]] = {
    shapes.EnumType: lambda shape, *_: st.sampled_from(list(shape.cls)),
    shapes.LiteralType: lambda shape, *_: st.sampled_from(shape.values),
    shapes.UnionType: lambda _, within, most: st.one_of(within) if most else within[-1],
    shapes.TupleType: lambda _, within, __: st.tuples(*within),
    shapes.DictType: lambda _, within, most: st.dictionaries(*within, max_size=most),
    shapes.VarTupleType: lambda _, within, most: st.lists(within[0], max_size=most).map(tuple),
    shapes.CustomType: _custom,
    **dict.fromkeys((shapes.StructType, shapes.DataclassType, shapes.NamedTupleType), _structure),
    **dict.fromkeys((shapes.ListType, shapes.CollectionType), _list),
    **dict.fromkeys((shapes.SetType, shapes.FrozenSetType), _set),
}


def _later(shape: Any, depth: int) -> st.SearchStrategy[Any]:
    """Return a deferred strategy for a type that may contain itself."""
    return st.deferred(lambda: values(shape, depth))


def values(shape: Any, depth: int = 0) -> st.SearchStrategy[Any]:
    """Return a strategy for random values of a msgspec type."""
    for found in (SPECIAL.get(getattr(shape, "cls", None)), SIMPLE.get(type(shape))):
        if found is not None:
            return found
    within = [_later(one, depth + 1) for one in contents(shape)]
    return COMPOSITE[type(shape)](shape, within, 2 if depth <= _DEEPEST else 0)


def test_every_question_is_found():
    assert len(KINDS) >= 60
    assert {"MetricQuery", "LogPageQuestion", "WriteSamples", "NewTask"} <= {kind.__name__ for kind in KINDS}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@settings(max_examples=4)
@given(data=st.data())
def test_a_question_and_its_result_arrive_as_equal_values(kind, data):
    question = data.draw(values(shapes.type_info(kind)))
    border = Border()
    assert same(border.question(question), question)
    if get_origin(result_type(kind)) not in STREAMED:
        border.result(question, data.draw(values(shapes.type_info(result_type(kind)))))
