"""Declared requests: one struct for each operation. Its validation, defaults and documentation derive from the fields.

A field is ``Annotated[int, "Jobs of a page.", Meta(ge=1, le=100)] = 20``. Its type decides how a value is read:
``str``, ``int``, ``bool``, ``Literal``, ``tuple[str, ...]``, ``dict[str, str]``, or a ``ParameterKind`` beside the
text. Its name on the wire is the struct's ``rename``, or that of ``msgspec.field``. It comes from the path if the path
names it, else from the query or the body. A ``ParameterReader`` reads one vendor's values and makes its errors.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pkgutil import iter_modules
from types import UnionType
from typing import (
    Annotated,
    Any,
    ClassVar,
    Literal,
    NamedTuple,
    TypedDict,
    TypeVar,
    Union,
    Unpack,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec

from jobmeter.access.call import Call
from jobmeter.access.limit import Rate
from jobmeter.dialects.base import Context, MissingFieldError, Operation, Parameter, Steps
from jobmeter.errors import InvalidRequestError
from jobmeter.model.time import parse_time

R = TypeVar("R", bound="Request")
Where = Literal["path", "query", "header", "body"]
_WITHOUT_BODY = frozenset({"GET", "DELETE"})
_INTEGER = re.compile(r"-?[0-9]{1,18}")
_FLAGS = {"true": True, "false": False}
_SHOWN_BOUND = 10**6
"""Bounds from this one on are left out of the documentation: they only limit the size of a number."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """The request of an operation, read. Calling it starts the operation, the generator ``_steps``."""

    call: Call
    context: Context
    operations: ClassVar[tuple[Operation, ...]] = ()
    """The operations that take this request."""

    def __call__(self) -> Steps:
        """Start the operation."""
        return self._steps()

    def _steps(self) -> Steps:
        raise NotImplementedError


class In(msgspec.Struct, frozen=True):
    """The place of a parameter, for a field whose place the method does not decide."""

    where: Where


QUERY, BODY, HEADER = In("query"), In("body"), In("header")


class ParameterSlot(msgspec.Struct, frozen=True, kw_only=True):
    """A field of a request: its name on the wire, its place, its type, its bounds and its default."""

    attribute: str
    name: str
    where: Where
    kind: "ParameterKind"
    meta: msgspec.Meta
    text: str = ""
    required: bool
    default: Any = None

    @property
    def bounds(self) -> tuple[int, int]:
        """The least and the greatest whole number."""
        low = self.meta.ge if self.meta.ge is not None else -(10**18)
        return int(low), int(self.meta.le if self.meta.le is not None else 10**18)

    def describe(self) -> Parameter:
        """Return the parameter for the reference page: description, form and default."""
        shown = self.kind.describe(self)
        text, mark, default = self.text.partition("Default: ")
        if not mark and not self.required and shown.default:
            mark, default = "Default: ", f"{shown.default}."
        parts = " ".join(filter(None, (text.strip(), shown.form, mark + default)))
        return Parameter(self.name, self.where, parts, self.required, shown.invalid, shown.example)


class KindText(NamedTuple):
    """Description of a parameter's values: their form and the default as text, values that it excludes, a valid one."""

    form: str = ""
    default: str = ""
    invalid: Sequence[str] = ()
    example: str = "x"


class ParameterKind:
    """A way to read a value; the base class reads a text."""

    def describe(self, slot: ParameterSlot) -> KindText:
        """Describe the values for the reference page. The default of a required parameter is not shown."""
        form = f"At most {slot.meta.max_length} characters." if slot.meta.max_length else ""
        return KindText(form, "" if slot.default in _NO_DEFAULTS else f"`{slot.default}`")

    def read(self, reader: "ParameterReader", slot: ParameterSlot, values: Mapping[str, Any]) -> Any:  # noqa: ANN401 - of any kind
        """Return the value of a slot. Raises InvalidRequestError naming it."""
        value = reader.get_value(values, slot)
        if value is None:
            return reader.resolve_absent(slot) if slot.required else slot.default
        return self.convert(reader, slot, value)

    def convert(self, reader: "ParameterReader", slot: ParameterSlot, value: Any) -> Any:  # noqa: ANN401
        """Convert a value that is present."""
        text = reader.read_text(slot, value)
        if slot.meta.max_length is not None and len(text) > slot.meta.max_length:
            raise reader.make_length_error(slot)
        return text


_NO_DEFAULTS: Sequence[Any] = (None, "", (), {}, [])


class Whole(ParameterKind):
    """A whole number within the bounds of the Meta."""

    def describe(self, slot: ParameterSlot) -> KindText:
        """Show the bounds, without those that only limit the size."""
        low, high = slot.bounds
        above = f"At least {low}." if low > 0 else ""
        form = f"{low} to {high}." if high < _SHOWN_BOUND else above
        default = "" if slot.default is None else str(slot.default)
        return KindText(form, default, (str(low - 1), str(high + 1), "1.5"), str(low))

    def convert(self, reader: "ParameterReader", slot: ParameterSlot, value: Any) -> Any:  # noqa: ANN401
        """Return the number."""
        return reader.read_whole(slot, value)


class Choice(ParameterKind):
    """A choice of words, in any letter case unless ``exact``; the value is the word's meaning."""

    def __init__(self, meanings: Mapping[str, Any] | Iterable[str], *, shown: bool = True, exact: bool = False) -> None:
        self.meanings = meanings if isinstance(meanings, Mapping) else {word: word for word in meanings}
        self.folded = {word if exact else word.casefold(): meaning for word, meaning in self.meanings.items()}
        self._shown = shown
        self.fold: Callable[[str], str] = str if exact else str.casefold

    def describe(self, slot: ParameterSlot) -> KindText:
        """List the words, and show the default's."""
        words = f"One of {list_names(self.meanings)}." if len(self.meanings) > 1 else f"{list_names(self.meanings)}."
        default = next((f"`{word}`" for word, meaning in self.meanings.items() if meaning == slot.default), "")
        return KindText(words if self._shown else "", default, ("no such word",), next(iter(self.meanings)))

    def convert(self, reader: "ParameterReader", slot: ParameterSlot, value: Any) -> Any:  # noqa: ANN401
        """Return the meaning of a word."""
        return reader.read_choice(slot, value, self)


class Flag(Choice):
    """``true`` or ``false``."""

    def __init__(self) -> None:
        super().__init__(_FLAGS, shown=False)

    def describe(self, slot: ParameterSlot) -> KindText:
        """Name both words, unless the default shows one."""
        return super().describe(slot)._replace(form="" if slot.default is not None else "`true` or `false`.")


class ParameterNames(ParameterKind):
    """Several texts, at most ``max_length`` of the Meta."""

    def describe(self, slot: ParameterSlot) -> KindText:
        """Show the largest number of members."""
        return super().describe(slot)._replace(form=f"At most {slot.meta.max_length}." if slot.meta.max_length else "")

    def read(self, reader: "ParameterReader", slot: ParameterSlot, values: Mapping[str, Any]) -> Any:  # noqa: ANN401
        """Return the texts as a tuple."""
        found = reader.read_names(slot, values)
        most = slot.meta.max_length
        if most is not None and len(found) > most:
            raise reader.make_count_error(slot, len(found))
        return found or (reader.resolve_absent(slot) if slot.required else slot.default)


class Time(ParameterKind):
    """A time; the value is epoch milliseconds."""

    def describe(self, slot: ParameterSlot) -> KindText:
        """Show a word, and a time."""
        return super().describe(slot)._replace(invalid=("no such time",), example="2026-11-20T15:33:56Z")

    def convert(self, reader: "ParameterReader", slot: ParameterSlot, value: Any) -> Any:  # noqa: ANN401
        """Return epoch milliseconds."""
        return reader.read_time(slot, value)


class Typed(ParameterNames):
    """A JSON value of another type, ``shape``, which msgspec converts."""

    def __init__(self, shape: Any) -> None:  # noqa: ANN401 - any type
        self.shape = shape

    read = ParameterKind.read

    def describe(self, slot: ParameterSlot) -> KindText:
        """Show an empty list or object, and no default."""
        return super().describe(slot)._replace(default="", example="[]" if get_origin(self.shape) is list else "{}")

    def convert(self, reader: "ParameterReader", slot: ParameterSlot, value: Any) -> Any:  # noqa: ANN401
        """Return the value as the type of its field."""
        found = reader.read_typed(slot, value, self.shape)
        if slot.meta.max_length is not None and len(found) > slot.meta.max_length:
            raise reader.make_count_error(slot, len(found))
        return found


class Header(ParameterKind):
    """A header, empty if it is absent."""

    def read(self, reader: "ParameterReader", slot: ParameterSlot, values: Mapping[str, Any]) -> str:  # noqa: ARG002
        """Return an empty text: the operation reads the header itself."""
        return ""


class Raw(ParameterKind):
    """The whole body, in a special encoding."""

    def read(self, reader: "ParameterReader", slot: ParameterSlot, values: Mapping[str, Any]) -> bytes:  # noqa: ARG002
        """Return an empty value: the operation decodes the call's body itself."""
        return b""


RAW = Raw()


class ParameterReader:
    """Reads the values of calls in one wire style. Its methods have the usual rules; a vendor's reader has others."""

    def list_values(self, call: Call, context: Context) -> Mapping[str, Any]:
        """Return the raw values by name: of the query and the path."""
        return {**dict(reversed(call.parameters)), **context.path}

    def make_converter(self, shape: type[R], slots: Sequence[ParameterSlot]) -> Callable[[Call, Context], R]:
        """Return the function that reads a request of this type."""
        # Most parameters are absent: the default of the field stands, and nothing reads them.
        reads = [
            (slot, slot.attribute, slot.kind.read, slot.required or type(slot.kind).read is not ParameterKind.read)
            for slot in slots
        ]
        # An encoded body, such as a message of remote write, is no form, whatever its content type.
        needs_values = any(not isinstance(slot.kind, Header | Raw) for slot in slots)

        def read(call: Call, context: Context) -> R:
            values = self.list_values(call, context) if needs_values else {}
            fields = {
                attribute: convert(self, slot, values)
                for slot, attribute, convert, always in reads
                if always or slot.name in values
            }
            return shape(call=call, context=context, **fields)

        return read

    def get_value(self, values: Mapping[str, Any], slot: ParameterSlot) -> Any:  # noqa: ANN401 - as it was sent
        """Return the raw value; None if it is absent. An empty text is absent, except in a path."""
        value = values.get(slot.name)
        return None if value == "" and slot.where != "path" else value

    def resolve_absent(self, slot: ParameterSlot) -> Any:  # noqa: ANN401 - of any kind
        """Raise the error for a required parameter that is absent, or return a value for the operation to check."""
        raise MissingFieldError(f"{slot.name} is required", slot.name)

    def make_length_error(self, slot: ParameterSlot) -> InvalidRequestError:
        """Return the error for a text with too many characters."""
        return InvalidRequestError(f"{slot.name} may have at most {slot.meta.max_length} characters", slot.name)

    def make_wrong_error(self, slot: ParameterSlot, value: Any, rule: str) -> InvalidRequestError:  # noqa: ANN401
        """Return the error for a value that is not ``rule``: "a whole number from 1 to 9"."""
        return InvalidRequestError(f"{slot.name} {str(value)[:64]!r} is not {rule}", slot.name)

    def make_count_error(self, slot: ParameterSlot, count: int) -> InvalidRequestError:
        """Return the error for a list with too many members."""
        return InvalidRequestError(f"{slot.name} has at most {slot.meta.max_length} members, not {count}", slot.name)

    def read_text(self, slot: ParameterSlot, value: Any) -> str:  # noqa: ANN401, ARG002
        """Return a text."""
        return value if isinstance(value, str) else msgspec.json.encode(value).decode()

    def read_whole(self, slot: ParameterSlot, value: Any) -> int:  # noqa: ANN401
        """Return a whole number within the bounds of the slot."""
        text, (low, high) = self.read_text(slot, value), slot.bounds
        if not _INTEGER.fullmatch(text) or not low <= int(text) <= high:
            raise self.make_wrong_error(slot, text, f"a whole number from {low} to {high}")
        return int(text)

    def read_choice(self, slot: ParameterSlot, value: Any, choice: Choice) -> Any:  # noqa: ANN401
        """Return the meaning of a word."""
        word = self.read_text(slot, value)
        folded = choice.fold(word)
        if folded not in choice.folded:
            words = ", ".join(choice.meanings)
            raise self.make_wrong_error(slot, word, f"one of {words}" if len(choice.meanings) > 1 else words)
        return choice.folded[folded]

    def read_time(self, slot: ParameterSlot, value: Any) -> int:  # noqa: ANN401
        """Return epoch milliseconds."""
        return parse_time(self.read_text(slot, value), slot.name)

    def read_names(self, slot: ParameterSlot, values: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the members of a comma-separated text, or of a list in a JSON body."""
        value = values.get(slot.name)
        value = "" if value is None else value
        parts = value if isinstance(value, list) else self.read_text(slot, value).split(",")
        return tuple(part.strip() for part in map(str, parts) if part.strip())

    def read_typed(self, slot: ParameterSlot, value: Any, shape: Any) -> Any:  # noqa: ANN401
        """Return a JSON value of another type."""
        try:
            return msgspec.convert(value, shape)
        except msgspec.ValidationError as error:
            raise InvalidRequestError(f"{slot.name} is not valid: {error}", slot.name) from error


def list_names(names: Iterable[str]) -> str:
    """List names for the text of a parameter."""
    return ", ".join(f"`{name}`" for name in names)


def list_slots(shape: type[Request], method: str, path: str) -> tuple[ParameterSlot, ...]:
    """Return the slots of a request: first the path's, then the others in the order of the fields."""
    hints = get_type_hints(shape, include_extras=True)
    names = dict(zip(shape.__struct_fields__, shape.__struct_encode_fields__, strict=True))
    in_path = {part[1:-1]: at for at, part in enumerate(path.split("/")) if part.startswith("{")}
    found = []
    for one in msgspec.structs.fields(shape):
        if one.name in Request.__struct_fields__:
            continue
        kind, meta, place, text = _annotation(hints[one.name])
        name = names[one.name]
        other: Where = "query" if path == "/" or set(method.split(", ")) & _WITHOUT_BODY else "body"
        where: Where = "path" if name in in_path else place.where if place else "body" if kind is RAW else other
        factory = one.default_factory
        default = one.default if factory is msgspec.NODEFAULT else factory()
        found.append(
            ParameterSlot(
                attribute=one.name,
                name=name,
                where=where,
                kind=kind,
                meta=meta,
                text=text,
                required=one.required,
                default=None if one.required else default,
            )
        )
    return tuple(sorted(found, key=lambda slot: in_path.get(slot.name, len(path))))


def _annotation(hint: Any) -> tuple[ParameterKind, msgspec.Meta, In | None, str]:  # noqa: ANN401 - any annotation
    """Return the kind, the Meta, the place and the text of an annotation."""
    shape, *parts = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    meta = next((one for one in parts if isinstance(one, msgspec.Meta)), msgspec.Meta())
    place = next((one for one in parts if isinstance(one, In)), None)
    kind = next((one for one in parts if isinstance(one, ParameterKind)), None)
    if place is HEADER:
        kind = Header()
    return kind or _kind_of(shape), meta, place, next((one for one in parts if isinstance(one, str)), "")


def _kind_of(shape: Any) -> ParameterKind:  # noqa: ANN401 - any type
    if get_origin(shape) in {Union, UnionType}:
        (shape,) = (one for one in get_args(shape) if one is not type(None))
    if get_origin(shape) is Literal:
        return Choice(get_args(shape))
    if shape == tuple[str, ...]:
        return ParameterNames()
    plain: Mapping[Any, ParameterKind] = {str: ParameterKind(), int: Whole(), bool: Flag(), bytes: RAW}
    return plain.get(shape) or Typed(shape)


class Options(TypedDict, total=False):
    """Further values of an ``Operation``."""

    name: str
    rate: Rate
    by_resource: bool
    body_bytes: int
    decoded_bytes: int
    read_bytes: Callable[[Call], int]
    encodings: frozenset[str]


@dataclass(frozen=True)
class Operations:
    """Declares the operations of a dialect: decorates the request of each, once for each route.

    ``rate`` is the rate limit of all operations.
    """

    reader: ParameterReader = field(default_factory=ParameterReader)
    rate: Rate | None = None

    def __call__(self, route: str, action: str, **options: Unpack[Options]) -> Callable[[type[R]], type[R]]:
        """Declare an operation that a request documents and answers.

        ``route`` is a method and a path, ``GET /api/v1/jobs/{JobId}``. The default name is the struct's name.
        """
        method, _, path = route.rpartition(" ")

        def declare(shape: type[R]) -> type[R]:
            slots = list_slots(shape, method, path)
            read = self.reader.make_converter(shape, slots)
            declared = Operation(
                action=action,
                method=method,
                path=path,
                answer=lambda call, context: read(call, context)(),
                parameters=tuple(slot.describe() for slot in slots),
                text=" ".join((shape.__doc__ or "").split()),
                **{"name": shape.__name__, "rate": self.rate, **options},  # type: ignore[arg-type]
            )
            shape.operations = (declared, *vars(shape).get("operations", ()))
            return shape

        return declare


def load_operations(package: str) -> tuple[Operation, ...]:
    """Return the operations that the modules of a package declare, by module, in the order of their declaration."""
    folder = import_module(package)
    modules = (import_module(f"{package}.{one.name}") for one in iter_modules(folder.__path__))
    return tuple(
        one
        for module in modules
        for shape in vars(module).values()
        if isinstance(shape, type) and shape.__module__ == module.__name__
        for one in vars(shape).get("operations", ())
    )
