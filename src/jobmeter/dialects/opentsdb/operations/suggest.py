"""``/api/suggest``.

https://opentsdb.net/docs/build/html/api_http/suggest.html
"""

from collections.abc import Generator
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from jobmeter.dialects.base import Context, MissingFieldError, Steps, ask
from jobmeter.dialects.opentsdb.answers import answer
from jobmeter.dialects.opentsdb.requests import Count, PostRequest, operation, parse_whole_number
from jobmeter.errors import InvalidRequestError
from jobmeter.model.question import Question
from jobmeter.model.series import NamePart
from jobmeter.query.series import NamesQuestion
from jobmeter.wire.opentsdb.names import CLUSTER, DEVICE, EXTERNAL, HOST, JOB, PROJECT, REPLICA, make_opentsdb_name

DEFAULT_MAX = 25
MOST = 10_000
_PARTS = {
    PROJECT: NamePart.PROJECT,
    CLUSTER: NamePart.CLUSTER,
    HOST: NamePart.NODE,
    DEVICE: NamePart.DEVICE,
    JOB: NamePart.JOB,
    REPLICA: NamePart.REPLICA,
}


class SuggestBody(msgspec.Struct, frozen=True):
    """A body."""

    type: str | None = None
    q: str | None = None
    max: int | str | None = None


@operation("GET, POST /api/suggest", "metrics:read", name="suggest")
class SuggestRequest(PostRequest, frozen=True, kw_only=True):
    """Stored names that begin with a text, sorted: an array of texts."""

    type: Annotated[str, "Required: `metrics`, `tagk` or `tagv`."] = ""
    q: Annotated[str, "The beginning of a name, in exactly these letters. Default: any."] = ""
    max: Annotated[int, "Most names of the answer.", Meta(le=MOST), Count()] = DEFAULT_MAX
    body: Annotated[bytes, "With POST: `{type, q, max}`, as in the query string."] = b""

    def _steps(self) -> Steps:
        kind, text, most = self.type, self.q, self.max
        if self.posted:
            body = self.decode_content(SuggestBody)
            kind, text, most = body.type or "", body.q or "", parse_whole_number(body.max, "max", DEFAULT_MAX, MOST)
        if not kind:
            message = "Missing 'type' parameter" if self.posted else "Missing parameter <code>type</code>"
            raise MissingFieldError(message, "type")
        limit = most or DEFAULT_MAX
        if kind == "metrics":
            names = yield from _metrics(text, limit)
        elif kind == "tagk":
            names = yield from _keys(text, limit, self.context)
        elif kind == "tagv":
            names = yield from _values(text, limit, self.context)
        else:
            raise InvalidRequestError(f"Invalid 'type' parameter:{kind[:64]}", "type")
        return answer(sorted(names)[:limit])


def _metrics(text: str, limit: int) -> Generator[Question[Any], Any, set[str]]:
    """Return the metrics that begin with the text, ours and those stored under ``external.``."""
    found: set[str] = set()
    # Metrics below "external." sort together and must not crowd out the rest.
    own = MOST if EXTERNAL.startswith(text) or text.startswith(EXTERNAL) else limit
    for prefix, most in ((text, own), (EXTERNAL + text, limit)):
        names = yield from ask(NamesQuestion(part=NamePart.METRIC, prefix=prefix, limit=most))
        found.update(make_opentsdb_name(name) for name in names)
    return {name for name in found if name.startswith(text)}


def _keys(text: str, limit: int, context: Context) -> Generator[Question[Any], Any, set[str]]:
    found = set((yield from ask(NamesQuestion(part=NamePart.LABEL, prefix=text, limit=limit))))
    for tag, part in _select_tags(context).items():
        if tag.startswith(text) and (yield from ask(NamesQuestion(part=part, limit=1))):
            found.add(tag)
    return found


def _values(text: str, limit: int, context: Context) -> Generator[Question[Any], Any, set[str]]:
    found: set[str] = set()
    for part in (NamePart.LABEL_VALUE, *_select_tags(context).values()):
        found.update((yield from ask(NamesQuestion(part=part, prefix=text, limit=limit))))
    return found


def _select_tags(context: Context) -> dict[str, NamePart]:
    """Return the tags that are not labels; the project only for callers who see several."""
    return {tag: part for tag, part in _PARTS.items() if tag != PROJECT or context.project is None}
