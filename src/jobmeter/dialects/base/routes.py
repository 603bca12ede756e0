"""Routing: finds the operation of a path and a method, and the values of the path's parameters."""

import re
from collections.abc import Sequence
from functools import cache
from typing import Generic, Protocol, TypeVar
from urllib.parse import unquote


class Route(Protocol):
    """A route: a method, and a path with ``{Name}`` for each segment that is a parameter."""

    @property
    def method(self) -> str:
        """The HTTP method."""
        ...

    @property
    def path(self) -> str:
        """The template of its paths."""
        ...


R = TypeVar("R", bound=Route)


class Routes(Generic[R]):
    """Operations by method and path. If several templates match a path, the one with the earlier literal wins.

    Templates of one method and one number of segments form one regular expression, so that a call costs one match.
    """

    def __init__(self, routes: Sequence[R]) -> None:
        groups: dict[tuple[str, int], list[R]] = {}
        for route in routes:
            groups.setdefault((route.method, route.path.count("/")), []).append(route)
        self._groups = {shape: _Group(found) for shape, found in groups.items()}

    def find(self, method: str, raw_path: str) -> tuple[R, dict[str, str]] | None:
        """Return the operation, and its path's parameters as ``match_path`` does; None for an unknown route."""
        group = self._groups.get((method, raw_path.count("/")))
        return None if group is None else group.find(raw_path)

    def list_methods(self, raw_path: str) -> list[str]:
        """Return the methods of the path, sorted."""
        count = raw_path.count("/")
        return sorted(
            method for (method, shape), group in self._groups.items() if shape == count and group.find(raw_path)
        )


class _Group(Generic[R]):
    def __init__(self, routes: Sequence[R]) -> None:
        ordered = sorted(routes, key=lambda route: [segment.startswith("{") for segment in route.path.split("/")])
        self._pattern = re.compile("|".join(f"({_pattern(route.path)})" for route in ordered))
        self._routes: dict[int, tuple[R, tuple[str, ...]]] = {}
        number = 1
        for route in ordered:
            names = _names(route.path)
            self._routes[number] = route, names
            number += 1 + len(names)

    def find(self, raw_path: str) -> tuple[R, dict[str, str]] | None:
        match = self._pattern.fullmatch(raw_path)
        if match is None or match.lastindex is None:
            return None
        # The group of a whole template closes last, after those of its parameters.
        route, names = self._routes[match.lastindex]
        return route, _values(names, match.groups()[match.lastindex :])


def match_path(template: str, raw_path: str) -> dict[str, str] | None:
    """Return the percent-decoded values of a template's ``{Name}`` segments; None for a path of another form.

    Nothing is normalised: ``//`` is an empty segment (an empty value) and ``%2F`` stays inside its segment.
    """
    names, pattern = _compile_template(template)
    match = pattern.fullmatch(raw_path)
    return None if match is None else _values(names, match.groups())


@cache  # bounded by the number of templates
def _compile_template(template: str) -> tuple[tuple[str, ...], re.Pattern[str]]:
    return _names(template), re.compile(_pattern(template))


def _values(names: Sequence[str], segments: Sequence[str]) -> dict[str, str]:
    return {
        name: unquote(segment) if "%" in segment else segment for name, segment in zip(names, segments, strict=False)
    }


def _names(template: str) -> tuple[str, ...]:
    return tuple(segment[1:-1] for segment in template.split("/") if segment.startswith("{"))


def _pattern(template: str) -> str:
    segments = ("([^/]*)" if segment.startswith("{") else re.escape(segment) for segment in template.split("/"))
    return "/".join(segments)
