"""``/jobs/{job}/links``, ``share`` and ``run-token``: links and tokens that open one job to their holder."""

import msgspec

from jobmeter.access.links import create_link, end_link, open_link
from jobmeter.access.share import DEFAULT_LIFE_SECONDS
from jobmeter.access.trace import issue
from jobmeter.dialects.base import ShareQuestion
from jobmeter.model.answers import Shared
from jobmeter.model.job import Job
from jobmeter.query.administration import LinksQuestion
from jobmeter.query.request import HeadQuestion
from jobmeter.server.native.bodies import Deleted, copy_fields
from jobmeter.server.native.endpoint import PROJECT, CallContext, Endpoint, make_job_ref
from jobmeter.wire.mlflow.names import check_joinable


class NewLink(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Lifetime of the link or token in seconds: 1 to 31536000 (a year). Default, also for an empty body: a week."""

    expires_in: int = DEFAULT_LIFE_SECONDS


class LinkBody(msgspec.Struct, frozen=True):
    """A valid link: the page is at ``/#/open?link=TOKEN&job=JOB`` of the server.

    ``by`` is the key that created it. ``public_url`` is the server's public address, empty if not configured.
    """

    id: str
    token: str
    by: str
    created: int
    expires: int
    last_used: int | None
    public_url: str


class LinkList(msgspec.Struct, frozen=True):
    """The valid links to a job, newest first."""

    links: list[LinkBody]


def _job(context: CallContext) -> Job:
    return context.ask(HeadQuestion(make_job_ref(context)))


def _life_seconds(context: CallContext) -> int:
    return (context.decode_body(NewLink) if context.call.body.strip() else NewLink()).expires_in


HEADING = "jobs"


@Endpoint(
    "createJobLink",
    "POST /jobs/{job}/links",
    "share:write",
    queries=(PROJECT,),
    body=NewLink,
    example={"expires_in": 3600},
    lane="control",
)
def _create(context: CallContext) -> LinkBody:
    """Create a link to one job's page.

    The holder may read the job until the link expires: record, metrics, findings, events and log lines, but nothing
    else and nothing about its nodes. A job has at most 100 valid links.
    """
    services, job = context.services, _job(context)
    seconds = _life_seconds(context)
    vault, clock = services.vault, services.clock
    made = create_link(services.registry, vault, clock, job.project, job.id, context.principal, seconds)
    return copy_fields(LinkBody, made, public_url=services.public_url)


@Endpoint("listJobLinks", "GET /jobs/{job}/links", "share:write", queries=(PROJECT,), lane="control")
def _list(context: CallContext) -> LinkList:
    """List the valid links to a job."""
    services = context.services
    found = [open_link(services.vault, key) for key in context.ask(LinksQuestion(make_job_ref(context)))]
    return LinkList([copy_fields(LinkBody, link, public_url=services.public_url) for link in found])


@Endpoint("endJobLink", "DELETE /jobs/{job}/links/{link}", "share:write", queries=(PROJECT,), lane="control")
def _end(context: CallContext) -> Deleted:
    """Revoke a link.

    Viewers who use it are signed out at once; other servers of the same registry follow within a second.
    """
    services, job = context.services, _job(context)
    end_link(services.registry, services.clock, job.project, job.id, context.path["link"], context.principal.id)
    services.authenticator.forget(context.path["link"])
    return Deleted(deleted=True)


@Endpoint(
    "shareJob", "POST /jobs/{job}/share", "share:write", queries=(PROJECT,), body=NewLink, example={"expires_in": 3600}
)
def _share(context: CallContext) -> Shared:
    """Create a share token.

    The holder may read this job's metrics until the token expires, and nothing else.
    """
    seconds = _life_seconds(context)
    made = context.ask(ShareQuestion(make_job_ref(context), seconds))
    return Shared(token=made.token, expires=made.expires_ms)


@Endpoint("createRunToken", "POST /jobs/{job}/run-token", "runs:write", queries=(PROJECT,))
def _run_token(context: CallContext) -> Shared:
    """Create a token for the runs of MLflow in one job.

    The holder may write and read these runs until the token expires in a year or the key is revoked, and nothing else.
    The job need not exist yet. A job whose id is too long for the id of a run is refused.
    """
    services, ref = context.services, make_job_ref(context)
    check_joinable(ref.id)
    token, expires_ms = issue(services.vault, context.principal, services.clock.now_ms(), ref.id, ref.project)
    return Shared(token=token, expires=expires_ms)
