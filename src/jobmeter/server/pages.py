"""Router of the page: built files from ``web/``, read once, sent in the compression that the browser accepts.

If the page was not built, this router handles no path and the root answers with a plain page.
"""

import hashlib
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import msgspec

from jobmeter.access.call import Call
from jobmeter.dialects.base import Answer
from jobmeter.errors import JobmeterError, NotFoundError
from jobmeter.server.exchange import Exchange
from jobmeter.server.native import problem
from jobmeter.server.pipeline import PublicHandler

FOLDER = Path(__file__).parent / "page"
PREFIX = "/page/"
_ENCODINGS = (("br", ".br"), ("gzip", ".gz"))
"""Compressed forms of each file, made when the page was built, smallest first."""
_TYPES = {
    ".css": "text/css",
    ".html": "text/html",
    ".js": "text/javascript",
    ".json": "application/json",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".woff2": "font/woff2",
}
"""Content types by file extension. The machine's own table may differ and takes long to read."""
_POLICY = (
    "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
SECURITY: tuple[tuple[str, str], ...] = (
    ("content-security-policy", _POLICY),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("permissions-policy", "camera=(), geolocation=(), microphone=(), payment=()"),
)
"""Security headers of every file: no resources from elsewhere, no inline scripts, no framing."""


class File(msgspec.Struct, frozen=True):
    """A file of the page in each compressed form, by content encoding (``""``: uncompressed)."""

    content_type: str
    etag: str
    cache: str
    forms: Mapping[str, bytes]


class PageRouter:
    """Router of ``/`` and ``/page/*``."""

    name = "page"
    prefixes = ("/",)

    def __init__(self, folder: Path = FOLDER) -> None:
        self._files = read_files(folder)

    def route(self, call: Call) -> PublicHandler | None:
        """Return the handler for a file of the page; None for other paths."""
        if call.raw_path != "/" and not call.raw_path.startswith(PREFIX):
            return None
        file = self._files.get("index.html" if call.raw_path == "/" else call.raw_path.removeprefix(PREFIX))
        if file is None:
            if call.raw_path == "/":
                return None
            raise NotFoundError(f"the page has no file {call.raw_path[:200]}", "path")
        if call.method not in {"GET", "HEAD"}:
            raise NotFoundError(f"{call.method} is not allowed here, use GET or HEAD", "method", "GET, HEAD")
        return PublicHandler(partial(_send, file))

    def refuse(self, call: Call, request_id: str, error: JobmeterError) -> Answer:  # noqa: ARG002 - a router's shape
        """Write an error in the form of our own API."""
        return problem.render(request_id, error)


def read_files(folder: Path) -> dict[str, File]:
    """Read the page's files by name; empty if the page was not built."""
    if not (folder / "index.html").is_file():
        return {}
    compressed = tuple(ending for _, ending in _ENCODINGS)
    plain = [path for path in sorted(folder.iterdir()) if path.is_file() and not path.name.startswith(".")]
    return {path.name: _file(path) for path in plain if path.suffix not in compressed}


def _file(path: Path) -> File:
    content = path.read_bytes()
    beside = {name: path.with_name(path.name + ending) for name, ending in _ENCODINGS}
    forms = {name: other.read_bytes() for name, other in beside.items() if other.is_file()}
    kind = _TYPES.get(path.suffix, "application/octet-stream")
    text = kind.startswith("text/") or kind in {"image/svg+xml", "application/json"}
    # A file whose name contains a digest of its content never changes; the others are revalidated each time.
    hashed = "-" in path.stem
    return File(
        content_type=f"{kind}; charset=utf-8" if text else kind,
        etag=f'"{hashlib.sha256(content).hexdigest()[:24]}"',
        cache="public, max-age=31536000, immutable" if hashed else "no-cache",
        forms={**forms, "": content},
    )


async def _send(file: File, exchange: Exchange) -> None:
    headers = (*SECURITY, ("etag", file.etag), ("cache-control", file.cache), ("vary", "accept-encoding"))
    etags = {tag.strip().removeprefix("W/") for tag in exchange.call.get_header("if-none-match").split(",")}
    if file.etag in etags or "*" in etags:
        await exchange.reply(Answer(304, b"", headers, file.content_type))
        return
    encoding = _choose_form(file, exchange.call.get_header("accept-encoding"))
    if encoding:
        headers = (*headers, ("content-encoding", encoding))
    await exchange.reply(Answer(200, file.forms[encoding], headers, file.content_type))


def _choose_form(file: File, accepted: str) -> str:
    """Choose the first form of the file that the browser accepts (RFC 9110, section 12.5.3)."""
    taken = set()
    for part in accepted.split(","):
        name, _, weight = part.partition(";")
        if weight.replace(" ", "").lower() not in {"q=0", "q=0.0", "q=0.00", "q=0.000"}:
            taken.add(name.strip().lower())
    return next((name for name in file.forms if name and name in taken), "")
