"""Reader of OpenTSDB's parameters: in a query string, or in the JSON body of a POST."""

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

import msgspec

from jobmeter.access.call import Call
from jobmeter.dialects.base import Context
from jobmeter.dialects.base.request import (
    Flag,
    KindText,
    Operations,
    ParameterKind,
    ParameterReader,
    ParameterSlot,
    Request,
)
from jobmeter.errors import InvalidRequestError

T = TypeVar("T")


class Present(Flag):
    """A flag that the presence of its parameter sets; ``false`` counts as absent."""

    def describe(self, slot: ParameterSlot) -> KindText:  # noqa: ARG002
        """Show no form: the parameter's text describes it."""
        return KindText(example="")

    def read(self, reader: ParameterReader, slot: ParameterSlot, values: Mapping[str, Any]) -> bool:  # noqa: ARG002
        """Return True if the parameter is present."""
        value = values.get(slot.name)
        return value is not None and value.strip().lower() != "false"


class Count(ParameterKind):
    """A whole number from 0 on; a number above the Meta's ``le`` becomes ``le``."""

    def describe(self, slot: ParameterSlot) -> KindText:
        """Show the default, even if it is 0."""
        return super().describe(slot)._replace(default=str(slot.default))

    def convert(self, reader: ParameterReader, slot: ParameterSlot, value: Any) -> int:  # noqa: ANN401, ARG002
        """Return the number."""
        return parse_whole_number(value, slot.name, 0, slot.bounds[1])


class _Reader(ParameterReader):
    def list_values(self, call: Call, context: Context) -> Mapping[str, Any]:  # noqa: ARG002
        """Return the first value of each parameter of the query string."""
        return dict(reversed(call.parameters))


operation = Operations(_Reader())
"""Declares an operation."""
PRESENT = Present()


class PostRequest(Request, frozen=True, kw_only=True):
    """A request with parameters in a query string, or in the JSON body of a POST."""

    body: Annotated[bytes, "With POST: a JSON object."] = b""

    @property
    def posted(self) -> bool:
        """True for a POST, whose body has the parameters."""
        return self.call.method == "POST"

    def decode_content(self, kind: type[T]) -> T:
        """Decode the body as ``kind``, for any content type. Raises InvalidRequestError (field ``body``)."""
        if not self.call.body.strip():
            raise InvalidRequestError("Missing request content", "body")
        try:
            return msgspec.json.decode(self.call.body, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidRequestError(f"Unable to parse the given JSON: {error}", "body") from error


def parse_whole_number(text: str | int | None, name: str, default: int, most: int) -> int:
    """Return a whole number from 0 to ``most``; a larger one becomes ``most``. Raises InvalidRequestError."""
    if text in {None, ""}:
        return default
    try:
        number = int(text or 0)
    except ValueError:
        number = -1
    if number < 0:
        raise InvalidRequestError(f"Unable to parse '{name}' as a number", name)
    return min(number, most)
