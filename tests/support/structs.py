"""Plugin of mypy that rejects functions of ``dataclasses`` on a ``msgspec.Struct``.

mypy takes a Struct for a dataclass, but ``dataclasses.replace`` and its like raise TypeError for one.
"""

from collections.abc import Callable

from mypy.nodes import TypeInfo
from mypy.plugin import FunctionContext, Plugin
from mypy.types import CallableType, Instance, Type, TypeType, TypeVarType, UnionType, get_proper_type

_FUNCTIONS = frozenset(f"dataclasses.{name}" for name in ("asdict", "astuple", "fields", "replace"))
_STRUCT = "msgspec.Struct"


class Structs(Plugin):
    """Reports an error at each call with a Struct, or with a class of Structs."""

    def get_function_hook(self, fullname: str) -> Callable[[FunctionContext], Type] | None:
        """See ``Plugin.get_function_hook``."""
        return _checked if fullname in _FUNCTIONS else None


def plugin(version: str) -> type[Plugin]:
    """Return the plugin class; mypy calls this function."""
    del version
    return Structs


def _checked(call: FunctionContext) -> Type:
    for types in call.arg_types[:1]:
        if any(_is_struct(info) for one in types for info in _classes(one)):
            call.api.fail("A function of dataclasses is given a msgspec.Struct; use msgspec.structs", call.context)
    return call.default_return_type


def _is_struct(info: TypeInfo) -> bool:
    return any(base.fullname == _STRUCT for base in info.mro)


def _classes(of: Type) -> list[TypeInfo]:
    """Return the classes that a value may have, or that it may be."""
    one = get_proper_type(of)
    match one:
        case Instance():
            return [one.type]
        case UnionType():
            return [info for item in one.items for info in _classes(item)]
        case TypeType():
            return _classes(one.item)
        case TypeVarType():
            return _classes(one.upper_bound)
        case CallableType() if one.is_type_obj():
            return [one.type_object()]
        case _:
            return []
