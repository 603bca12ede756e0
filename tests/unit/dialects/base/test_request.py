"""Tests of declared requests: their values, refusals and documentation follow from the fields."""

import json
from typing import Annotated, Literal
from urllib.parse import urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta, field

from jobmeter.access.call import Call
from jobmeter.dialects.base import Answer, Context, MissingFieldError, Parameter, drive
from jobmeter.dialects.base.request import (
    HEADER,
    Choice,
    Operations,
    ParameterReader,
    Request,
    Time,
    Typed,
    list_slots,
    load_operations,
)
from jobmeter.dialects.registry import DIALECTS, list_dialects
from jobmeter.errors import InvalidRequestError

operation = Operations()
COLOURS = {"Red": 1, "Green": 2}


@operation("GET /things/{name}", "jobs:read", name="ListThings")
@operation("POST /things/{name}/search", "jobs:read", name="SearchThings", by_resource=True)
class Things(Request, frozen=True, kw_only=True, rename="camel"):
    """Lists things.

    Newest first.
    """

    page_size: Annotated[int, "Things of a page.", Meta(ge=1, le=100)] = 20
    offset: Annotated[int | None, Meta(ge=-5)] = None
    order: Literal["asc", "desc"] = "desc"
    colour: Annotated[int, "Default: all.", Choice(COLOURS)] = 0
    exact: Annotated[str, Choice(("Ab", "ab"), exact=True)] = "Ab"
    deep: bool = False
    since: Annotated[int | None, "Default: the epoch.", Time()] = None
    ids: Annotated[tuple[str, ...], Meta(max_length=2)] = ()
    text: Annotated[str, Meta(max_length=3)]
    sizes: Annotated[list[int], Typed(list[int])] = field(default_factory=list)
    language: Annotated[str, HEADER, "Ignored."] = field(default="", name="X-Language")
    name: Annotated[str, "Its name."]

    def _steps(self):
        yield from ()
        shown = (self.name, self.text, self.page_size, self.offset, self.order, self.colour, self.exact)
        return Answer(200, json.dumps([*shown, self.deep, self.since, self.ids, self.sizes]).encode())


LISTED, SEARCHED = Things.operations


def answered(**values):
    call = Call("GET", "/things/n", urlencode(values), ())
    return json.loads(drive(LISTED.answer(call, Context(0, "id", {"name": "n"})), lambda question: question).body)


def test_absent_values_are_the_defaults_and_an_empty_text_is_absent():
    expected = ["n", "t", 20, None, "desc", 0, "Ab", False, None, [], []]
    assert answered(text="t") == expected
    assert answered(text="t", pageSize="", order="", colour="", ids="", deep="") == expected


@pytest.mark.parametrize(("value", "ids"), [(False, ["false"]), (0, ["0"]), ([], []), (None, []), ("", [])])
def test_a_false_value_of_a_body_is_a_member_of_a_list(value, ids):
    slot = next(one for one in list_slots(Things, "GET", "/things/{name}") if one.attribute == "ids")
    assert list(slot.kind.read(ParameterReader(), slot, {"ids": value})) == ids


@given(st.integers(1, 100), st.integers(-5, 10**17), st.sampled_from(["ASC", "asc", "Desc"]), st.booleans())
def test_values_are_read_as_their_types_say(size, offset, order, deep):
    values = {"text": "t", "pageSize": size, "offset": offset, "order": order, "deep": deep, "colour": "gREEN"}
    found = answered(**values, exact="ab", ids=" a, ,b", since="1970-01-01T00:00:01Z")
    assert found == ["n", "t", size, offset, order.lower(), 2, "ab", deep, 1000, ["a", "b"], []]


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("pageSize", "0", "pageSize '0' is not a whole number from 1 to 100"),
        ("pageSize", "101", "pageSize '101' is not a whole number from 1 to 100"),
        ("pageSize", "1.0", "pageSize '1.0' is not a whole number from 1 to 100"),
        ("pageSize", "٣", "pageSize '٣' is not a whole number from 1 to 100"),
        ("offset", "-6", f"offset '-6' is not a whole number from -5 to {10**18}"),
        ("order", "up", "order 'up' is not one of asc, desc"),
        ("exact", "AB", "exact 'AB' is not one of Ab, ab"),
        ("deep", "1", "deep '1' is not one of true, false"),
        ("ids", "a,b,c", "ids has at most 2 members, not 3"),
        ("text", "long", "text may have at most 3 characters"),
        ("sizes", "x", "sizes is not valid: Expected `array`, got `str`"),
    ],
)
def test_an_invalid_value_is_refused_by_its_name(name, value, message):
    with pytest.raises(InvalidRequestError) as refused:
        answered(**{"text": "t", name: value})
    assert (refused.value.message, refused.value.field) == (message, name)


def test_a_required_value_is_missed():
    with pytest.raises(MissingFieldError) as refused:
        answered(pageSize=1)
    assert refused.value.field == "text"


def test_the_documentation_follows_from_the_fields():
    assert (LISTED.name, LISTED.method, LISTED.path, LISTED.text) == (
        *("ListThings", "GET", "/things/{name}"),
        "Lists things. Newest first.",
    )
    rows = {one.name: (one.where, one.text, one.required) for one in LISTED.parameters}
    assert next(iter(rows)) == "name", "those of the path come first"
    assert rows == {
        "name": ("path", "Its name.", True),
        "pageSize": ("query", "Things of a page. 1 to 100. Default: 20.", False),
        "offset": ("query", "", False),
        "order": ("query", "One of `asc`, `desc`. Default: `desc`.", False),
        "colour": ("query", "One of `Red`, `Green`. Default: all.", False),
        "exact": ("query", "One of `Ab`, `ab`. Default: `Ab`.", False),
        "deep": ("query", "Default: `false`.", False),
        "since": ("query", "Default: the epoch.", False),
        "ids": ("query", "At most 2.", False),
        "text": ("query", "At most 3 characters.", True),
        "sizes": ("query", "", False),
        "X-Language": ("header", "Ignored.", False),
    }
    size = next(one for one in LISTED.parameters if one.name == "pageSize")
    assert size == Parameter("pageSize", "query", size.text, False, ("0", "101", "1.5"), "1")


def test_a_request_may_have_several_routes():
    assert (SEARCHED.name, SEARCHED.method, SEARCHED.by_resource, LISTED.by_resource) == (
        *("SearchThings", "POST"),
        *(True, False),
    )
    assert {one.where for one in SEARCHED.parameters} == {"path", "body", "header"}


def test_every_operation_of_a_dialect_is_found_in_its_folder():
    # Two dialects list their operations explicitly; the gateway has none.
    others = {"mlflow:MLFLOW", "alertmanager:ALERTMANAGER", "alibaba.gateway:GATEWAY"}
    folders = [entry.split(":")[0] for entry in DIALECTS if entry not in others]
    found = [load_operations(f"jobmeter.dialects.{folder}.operations") for folder in folders]
    assert all(found)
    listed = [dialect.operations for dialect in list_dialects() if dialect.operations in found]
    assert listed == found
