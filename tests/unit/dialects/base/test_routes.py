"""Tests of routes: the operation of a method and a path, against a plain comparison segment by segment."""

from dataclasses import dataclass
from urllib.parse import quote, unquote

from hypothesis import given
from hypothesis import strategies as st

from jobmeter.dialects.base.routes import Routes, match_path


@dataclass(frozen=True)
class _Route:
    method: str
    path: str


_SEGMENTS = st.sampled_from(["a", "b", "a.c", "(a)", "{one}", "{two}", "{three}"])


@st.composite
def _routes(draw):
    found = {}
    for _ in range(draw(st.integers(1, 8))):
        segments = draw(st.lists(_SEGMENTS, min_size=1, max_size=4))
        names = [one for one in segments if one.startswith("{")]
        if len(set(names)) == len(names):
            route = _Route(draw(st.sampled_from(["GET", "POST"])), "/" + "/".join(segments))
            found[route.method, tuple("{" if one.startswith("{") else one for one in segments)] = route
    return list(found.values())


def _plain(route, path):
    names, given_segments = route.path.split("/"), path.split("/")
    if len(names) != len(given_segments):
        return None
    values = {}
    for name, segment in zip(names, given_segments, strict=True):
        if name.startswith("{"):
            values[name[1:-1]] = unquote(segment)
        elif name != segment:
            return None
    return values


_PATHS = st.lists(st.one_of(st.sampled_from(["a", "b", "a.c", "axc", "(a)", ""]), st.text(max_size=4)), max_size=4).map(
    lambda segments: "/" + "/".join(quote(segment, safe="") for segment in segments)
)


@given(_routes(), st.sampled_from(["GET", "POST"]), _PATHS)
def test_a_route_is_found_as_by_comparing_segments_and_the_earlier_literal_wins(routes, method, path):
    matching = [(route, values) for route in routes if (values := _plain(route, path)) is not None]
    found = Routes(routes).find(method, path)
    own = [(route, values) for route, values in matching if route.method == method]
    first = min(own, key=lambda one: [name.startswith("{") for name in one[0].path.split("/")], default=None)
    assert found == first
    assert Routes(routes).list_methods(path) == sorted({route.method for route, _ in matching})
    for route in routes:
        assert match_path(route.path, path) == _plain(route, path)


def test_nothing_is_normalised():
    assert match_path("/a/{x}/b", "/a//b") == {"x": ""}
    assert match_path("/a/{x}/b", "/a/1%2F2/b") == {"x": "1/2"}
    assert match_path("/a/{x}", "/a/1\n") == {"x": "1\n"}
    assert match_path("/a/{x}", "/a/1/2") is None
