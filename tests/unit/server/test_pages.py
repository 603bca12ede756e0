"""Tests of the page's files: only these are served, in the browser's formats, with headers against foreign scripts."""

import gzip
import re

import pytest
from tests.support.asgi import call

from jobmeter.access.call import Call
from jobmeter.errors import NotFoundError
from jobmeter.server.pages import PageRouter, read_files


@pytest.fixture
def door(tmp_path):
    folder = tmp_path / "page"
    folder.mkdir()
    (folder / "index.html").write_text("<!doctype html>")
    (folder / "index-abc123.js").write_text("1")
    (folder / "index-abc123.js.gz").write_bytes(gzip.compress(b"1", mtime=0))
    (folder / "index-abc123.js.br").write_bytes(b"brotli")
    (folder / ".source").write_text("secret")
    (tmp_path / "outside.txt").write_text("outside")
    return PageRouter(folder)


class Serving:
    """Application with this router only."""

    def __init__(self, door):
        self.door = door

    async def __call__(self, scope, receive, send):
        from jobmeter.server.exchange import Exchange

        exchange = Exchange(scope, receive, send)
        await self.door.route(exchange.call).serve(exchange)


def get(door, path, **headers):
    return call(Serving(door), "GET", path, headers={name.replace("_", "-"): value for name, value in headers.items()})


def test_every_file_is_sent_with_what_makes_it_safe(door):
    for path in ("/", "/page/index-abc123.js"):
        headers = get(door, path).headers
        policy = dict(part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";"))
        assert policy["default-src"] == "'self'"
        assert policy["frame-ancestors"] == policy["base-uri"] == policy["object-src"] == "'none'"
        assert policy["require-trusted-types-for"] == "'script'"
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["referrer-policy"] == "no-referrer"


def test_a_file_is_requested_once_and_the_first_page_each_time(door):
    assert get(door, "/page/index-abc123.js").headers["cache-control"] == "public, max-age=31536000, immutable"
    first = get(door, "/")
    assert first.headers["cache-control"] == "no-cache"
    again = get(door, "/", If_None_Match=first.headers["etag"])
    assert (again.status, again.body) == (304, b"")


@pytest.mark.parametrize(
    ("accepted", "encoding", "body"),
    [
        ("gzip, deflate, br", "br", b"brotli"),
        ("gzip", "gzip", gzip.compress(b"1", mtime=0)),
        ("br;q=0, gzip;q=0.5", "gzip", gzip.compress(b"1", mtime=0)),
        ("", None, b"1"),
        ("identity", None, b"1"),
    ],
)
def test_a_file_comes_in_the_smallest_form_that_the_browser_takes(door, accepted, encoding, body):
    reply = get(door, "/page/index-abc123.js", Accept_Encoding=accepted)
    assert reply.headers.get("content-encoding") == encoding
    if encoding != "gzip":
        assert reply.body == body
    else:
        assert gzip.decompress(reply.body) == b"1"
    assert reply.headers["content-type"].startswith("text/javascript")
    assert reply.headers["vary"] == "accept-encoding"


@pytest.mark.parametrize(
    ("name", "content_type"),
    [
        ("main-abc123.js", "text/javascript; charset=utf-8"),
        ("style-abc123.css", "text/css; charset=utf-8"),
        ("icon.svg", "image/svg+xml; charset=utf-8"),
        ("icon.png", "image/png"),
        ("other", "application/octet-stream"),
    ],
)
def test_content_types_are_the_same_on_every_machine(monkeypatch, tmp_path, name, content_type):
    monkeypatch.setattr("mimetypes.guess_type", lambda _name: ("text/of-the-machine", None))
    (tmp_path / "index.html").write_text("<!doctype html>")
    (tmp_path / name).write_text("1")
    files = read_files(tmp_path)
    assert files[name].content_type == content_type
    assert files["index.html"].content_type == "text/html; charset=utf-8"


@pytest.mark.parametrize(
    "path", ["/page/", "/page/../outside.txt", "/page/.source", "/page/index-abc123.js.gz", "/page/%2e%2e/x"]
)
def test_nothing_else_of_the_folder_or_beside_it_is_there(door, path):
    with pytest.raises(NotFoundError):
        door.route(Call("GET", path, "", ()))


def test_files_are_only_read(door):
    with pytest.raises(NotFoundError, match="POST is not allowed"):
        door.route(Call("POST", "/", "", ()))


def test_without_a_built_page_the_root_answers_as_before(tmp_path):
    assert PageRouter(tmp_path / "none").route(Call("GET", "/", "", ())) is None


def test_the_plain_page_has_its_own_policy(server):
    reply = server.raw("GET", "/")
    assert reply.status == 200
    assert re.search(r"default-src '(none|self)'", reply.headers["content-security-policy"])
