"""``/jobs/{job}/share``: a token that opens one job to its holder."""

import msgspec

from jobmeter.access.share import DEFAULT_LIFE_SECONDS
from jobmeter.dialects.base import ShareQuestion
from jobmeter.server.commands import share
from jobmeter.server.native.endpoint import PROJECT, CallContext, Endpoint, job_ref
from jobmeter.server.native.jobs import JOB_PATH


class ShareBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How long the token holds, in seconds: 1 to 31536000 (a year), by default a week."""

    expires_in: int = DEFAULT_LIFE_SECONDS


class Shared(msgspec.Struct, frozen=True):
    """The token, and when it ends."""

    token: str
    expires: int


def _share(context: CallContext) -> Shared:
    request_body = context.body(ShareBody) if context.call.body.strip() else ShareBody()
    made = share(context.services, ShareQuestion(job_ref(context), request_body.expires_in), context.scope)
    return Shared(made.token, made.expires_ms)


ENDPOINTS = (
    Endpoint(
        name="shareJob",
        tag="jobs",
        method="POST",
        path="/jobs/{job}/share",
        action="share:write",
        summary="Make a share token",
        text="Whoever holds the token may read this job's metrics until it ends, and nothing else.",
        work=_share,
        answer=Shared,
        queries=(PROJECT,),
        paths=JOB_PATH,
        body_text='`{"expires_in": seconds}`; empty for a week.',
        example={"expires_in": 3600},
    ),
)
