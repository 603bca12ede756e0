"""``/api/suggest``.

https://opentsdb.net/docs/build/html/api_http/suggest.html
"""

from collections.abc import Generator
from typing import Any

import msgspec

from jobmeter.access.call import Call
from jobmeter.dialects.base import Context, MissingFieldError, Operation, Parameter, Steps, execute
from jobmeter.dialects.opentsdb.answers import answer
from jobmeter.dialects.opentsdb.arguments import json_body, required, whole
from jobmeter.errors import InvalidRequestError
from jobmeter.model.question import Question
from jobmeter.model.series import NamePart
from jobmeter.query.series import NamesQuestion
from jobmeter.wire.opentsdb.names import CLUSTER, DEVICE, EXTERNAL, HOST, JOB, PROJECT, REPLICA, to_opentsdb

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


def suggest(call: Call, context: Context) -> Steps:
    """Return names that begin with a text."""
    if call.method == "POST":
        body = json_body(call, SuggestBody)
        if not body.type:
            raise MissingFieldError("Missing 'type' parameter", "type")
        kind, text, most = body.type, body.q or "", body.max
    else:
        kind, text, most = required(call, "type"), call.parameter("q") or "", call.parameter("max")
    limit = whole(most, "max", DEFAULT_MAX, MOST) or DEFAULT_MAX
    if kind == "metrics":
        names = yield from _metrics(text, limit)
    elif kind == "tagk":
        names = yield from _keys(text, limit, context)
    elif kind == "tagv":
        names = yield from _values(text, limit, context)
    else:
        raise InvalidRequestError(f"Invalid 'type' parameter:{kind[:64]}", "type")
    return answer(sorted(names)[:limit])


def _metrics(text: str, limit: int) -> Generator[Question[Any], Any, set[str]]:
    """Return metrics with the same name as ours, and those stored under ``external.``."""
    found: set[str] = set()
    # Metrics below "external." sort together and must not crowd out the rest.
    own = MOST if EXTERNAL.startswith(text) or text.startswith(EXTERNAL) else limit
    for prefix, most in ((text, own), (EXTERNAL + text, limit)):
        names = yield from execute(NamesQuestion(part=NamePart.METRIC, prefix=prefix, limit=most))
        found.update(to_opentsdb(name) for name in names)
    return {name for name in found if name.startswith(text)}


def _keys(text: str, limit: int, context: Context) -> Generator[Question[Any], Any, set[str]]:
    found = set((yield from execute(NamesQuestion(part=NamePart.LABEL, prefix=text, limit=limit))))
    for tag, part in _shown(context).items():
        if tag.startswith(text) and (yield from execute(NamesQuestion(part=part, limit=1))):
            found.add(tag)
    return found


def _values(text: str, limit: int, context: Context) -> Generator[Question[Any], Any, set[str]]:
    found: set[str] = set()
    for part in (NamePart.LABEL_VALUE, *_shown(context).values()):
        found.update((yield from execute(NamesQuestion(part=part, prefix=text, limit=limit))))
    return found


def _shown(context: Context) -> dict[str, NamePart]:
    """Return the tags that are not labels; the project only for callers who see several."""
    return {tag: part for tag, part in _PARTS.items() if tag != PROJECT or context.project is None}


OPERATIONS = (
    Operation(
        name="suggest",
        action="metrics:read",
        method="GET, POST",
        path="/api/suggest",
        answer=suggest,
        parameters=(
            Parameter("type", "query", "`metrics`, `tagk` or `tagv`.", required=True),
            Parameter("q", "query", "What names begin with, in exactly these letters. Default: anything."),
            Parameter("max", "query", f"How many. Default: {DEFAULT_MAX}."),
            Parameter("type, q, max", "body", "As in the query string."),
        ),
        text="Names of what was written, sorted: an array of texts.",
    ),
)
