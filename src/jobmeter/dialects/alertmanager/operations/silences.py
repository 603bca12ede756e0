"""Silences: list, create, change and end them."""

from typing import Annotated, Any

import msgspec

from jobmeter.alerts.muting import fulfils
from jobmeter.dialects.alertmanager.requests import API, FilterRequest, SilenceRequest, answer, operation
from jobmeter.dialects.base import Answer, Steps, ask
from jobmeter.dialects.base.request import Request
from jobmeter.errors import InvalidRequestError, NotFoundError
from jobmeter.model.alert import ExpireSilence, LabelMatcher, PutSilence, Silence, SilencesQuestion
from jobmeter.model.time import format_iso, parse_time


@operation(f"GET {API}/silences", "alerts:read", name="getSilences")
class GetSilences(FilterRequest, frozen=True, kw_only=True):
    """Returns the silences."""

    def _steps(self) -> Steps:
        found = yield from ask(SilencesQuestion())
        named = [(one, {matcher.name: matcher.value for matcher in one.matchers}) for one in found]
        return answer([_silence(one, self.context.now_ms) for one, names in named if fulfils(self.matchers, names)])


class _Posted(msgspec.Struct, rename={"start": "startsAt", "end": "endsAt", "author": "createdBy"}):
    """A silence as clients post it."""

    matchers: list[LabelMatcher]
    start: str
    end: str
    author: str
    comment: str
    id: str | None = None


@operation(f"POST {API}/silences", "alerts:write", name="postSilences")
class PostSilences(Request, frozen=True, kw_only=True):
    """Creates or changes a silence."""

    body: Annotated[
        bytes,
        "`matchers`, `startsAt`, `endsAt`, `createdBy`, `comment`, and `id` for a change.",
    ]

    def _steps(self) -> Steps:
        try:
            posted = msgspec.json.decode(self.call.body, type=_Posted)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidRequestError(f"the body is not a silence: {error}", "body") from error
        made = yield from ask(
            PutSilence(
                matchers=tuple(posted.matchers),
                start=parse_time(posted.start, "startsAt"),
                end=parse_time(posted.end, "endsAt"),
                author=posted.author,
                comment=posted.comment,
                id=posted.id or "",
            )
        )
        return answer({"silenceID": made.id})


@operation(f"GET {API}/silence/{{silenceID}}", "alerts:read", name="getSilence")
class GetSilence(SilenceRequest, frozen=True, kw_only=True):
    """Returns one silence."""

    def _steps(self) -> Steps:
        for one in (yield from ask(SilencesQuestion())):
            if one.id == self.id:
                return answer(_silence(one, self.context.now_ms))
        raise NotFoundError(f"there is no silence {self.id[:64]!r}", "silence", self.id[:64])


@operation(f"DELETE {API}/silence/{{silenceID}}", "alerts:write", name="deleteSilence")
class DeleteSilence(SilenceRequest, frozen=True, kw_only=True):
    """Ends a silence."""

    def _steps(self) -> Steps:
        yield from ask(ExpireSilence(id=self.id))
        return Answer(200, b"{}")


def _silence(one: Silence, now_ms: int) -> dict[str, Any]:
    state = "expired" if one.end <= now_ms else "pending" if one.start > now_ms else "active"
    return {
        "id": one.id,
        "status": {"state": state},
        "updatedAt": format_iso(one.updated),
        "comment": one.comment,
        "createdBy": one.author,
        "startsAt": format_iso(one.start),
        "endsAt": format_iso(one.end),
        "matchers": [msgspec.to_builtins(matcher) for matcher in one.matchers],
    }
