"""``/jobs/{job}/links``: links that open the page of one job to their holder."""

import msgspec
from msgspec.structs import asdict

from jobmeter.access.links import Link, create_link, end_link, list_links
from jobmeter.access.share import DEFAULT_LIFE_SECONDS
from jobmeter.model.job import Job
from jobmeter.server.native.bodies import Deleted
from jobmeter.server.native.endpoint import PROJECT, CallContext, Endpoint, job_ref
from jobmeter.server.native.jobs import JOB_PATH


class NewLink(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How long the link holds, in seconds: 1 to 31536000 (a year), by default a week."""

    expires_in: int = DEFAULT_LIFE_SECONDS


class LinkBody(msgspec.Struct, frozen=True):
    """A link that holds: the page is at ``/#/open?link=TOKEN&job=JOB``. ``by`` is the key that it was made with."""

    id: str
    token: str
    by: str
    created: int
    expires: int
    last_used: int | None


class LinkList(msgspec.Struct, frozen=True):
    """The links to a job that hold, newest first."""

    links: list[LinkBody]


def _job(context: CallContext) -> Job:
    return context.services.executor.head(job_ref(context), context.scope)


def _body(link: Link) -> LinkBody:
    return LinkBody(**asdict(link))


def _create(context: CallContext) -> LinkBody:
    services, job = context.services, _job(context)
    wanted = context.body(NewLink) if context.call.body.strip() else NewLink()
    registry, vault, clock = services.registry, services.vault, services.clock
    return _body(create_link(registry, vault, clock, job.project, job.id, context.principal, wanted.expires_in))


def _list(context: CallContext) -> LinkList:
    services, job = context.services, _job(context)
    found = list_links(services.registry, services.vault, services.clock, job.project, job.id)
    return LinkList([_body(link) for link in found])


def _end(context: CallContext) -> Deleted:
    services, job = context.services, _job(context)
    end_link(services.registry, services.clock, job.project, job.id, context.path["link"], context.principal.id)
    services.authenticator.forget(context.path["link"])
    return Deleted(deleted=True)


ENDPOINTS = (
    Endpoint(
        name="createJobLink",
        tag="jobs",
        method="POST",
        path="/jobs/{job}/links",
        action="share:write",
        summary="Make a link that opens one job's page",
        text=(
            "Whoever holds the token may read the job until it ends: record, metrics, findings, events and log lines; "
            "nothing else, and nothing of its nodes. A job has at most 100 links that hold."
        ),
        work=_create,
        answer=LinkBody,
        queries=(PROJECT,),
        paths=JOB_PATH,
        body_text='`{"expires_in": seconds}`; empty for a week.',
        example={"expires_in": 3600},
        lane="control",
    ),
    Endpoint(
        name="listJobLinks",
        tag="jobs",
        method="GET",
        path="/jobs/{job}/links",
        action="share:write",
        summary="The links to a job that hold",
        work=_list,
        answer=LinkList,
        queries=(PROJECT,),
        paths=JOB_PATH,
        lane="control",
    ),
    Endpoint(
        name="endJobLink",
        tag="jobs",
        method="DELETE",
        path="/jobs/{job}/links/{link}",
        action="share:write",
        summary="End a link",
        text="Whoever looks by it is signed out at once; other servers of the same registry follow within a second.",
        work=_end,
        answer=Deleted,
        queries=(PROJECT,),
        paths={**JOB_PATH, "link": "The link's id."},
        lane="control",
    ),
)
