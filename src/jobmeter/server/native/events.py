"""``/jobs/{job}/events`` and ``/nodes/{node}/events``: what happened, and when."""

from typing import Any

import msgspec

from jobmeter.errors import InvalidRequestError
from jobmeter.model.event import EventFilter, EventPage, EventSource, Level
from jobmeter.model.series import check_name
from jobmeter.query.request import NodeRef
from jobmeter.server.native.arguments import Query
from jobmeter.server.native.bodies import EventBody, event_body
from jobmeter.server.native.endpoint import PROJECT, Ask, Endpoint
from jobmeter.server.native.jobs import JOB_PATH, MAX_OFFSET, job_ref

MAX_EVENTS = 1_000
_LEVELS = tuple(Level)
_ORDERS = {"asc": False, "desc": True}


class JobEvents(msgspec.Struct, frozen=True):
    """One page of a job's events. ``total`` match in all."""

    job: str
    project: str
    events: list[EventBody]
    total: int


class NodeEvents(msgspec.Struct, frozen=True):
    """One page of what happened on a node, events of replicas that were on it included. ``total`` match in all."""

    node: str
    events: list[EventBody]
    total: int


def _of_job(ask: Ask) -> JobEvents:
    executor = ask.services.executor
    job = executor.head(job_ref(ask), ask.scope)
    replicas = frozenset(ask.arguments.texts("replica"))
    page = _page(ask, projects=frozenset({job.project}), jobs=(job.id,), replicas=replicas)
    return JobEvents(job.id, job.project, [event_body(event) for event in page.events], page.total)


def _of_node(ask: Ask) -> NodeEvents:
    name, cluster = check_name(ask.path["node"], "node"), ask.arguments.text("cluster") or None
    nodes = ask.services.executor.nodes(NodeRef(name, cluster, ask.project), ask.scope)
    page = _page(
        ask,
        projects=frozenset(node.project for node in nodes),
        nodes=frozenset({name}),
        clusters=frozenset({cluster} if cluster else ()),
    )
    return NodeEvents(name, [event_body(event) for event in page.events], page.total)


def _page(ask: Ask, **whose: Any) -> EventPage:  # noqa: ANN401 - fields of EventFilter
    given = ask.arguments
    start, end, since = given.time("start"), given.time("end"), given.duration("since")
    if since is not None:
        if start is not None:
            raise InvalidRequestError("start and since exclude each other", "since")
        start = (ask.services.clock.now_ms() if end is None else end) - since
    least = given.choice("level", {level.value: level for level in Level}, Level.DEBUG.value)
    question = EventFilter(
        **whose,
        sources=given.choices("source", EventSource),
        levels=frozenset() if least is Level.DEBUG else frozenset(_LEVELS[_LEVELS.index(least) :]),
        contains=given.text("contains"),
        start=start,
        end=end,
        descending=given.choice("order", _ORDERS, "asc"),
        offset=given.integer("offset", 0, 0, MAX_OFFSET),
        limit=given.integer("limit", 100, 0, MAX_EVENTS),
    )
    return ask.services.executor.run(question, ask.scope)


_QUERIES = (
    Query("source", "Who tells: state (Jobmeter itself, when a state changed), job, replica, node.", many=True),
    Query("level", "Only events of this level or above: debug, info, warning, error.", example="warning"),
    Query("contains", "Only events whose reason or message holds this text, in any case.", example="oom"),
    Query("start", "First moment."),
    Query("end", "End, itself not included."),
    Query("since", "Instead of start: how long before the end, or before now.", example="1h"),
    Query("order", "asc or desc (newest first). Default: asc."),
    Query("limit", f"Events in the answer, 0 to {MAX_EVENTS}. Default: 100.", type="integer"),
    Query("offset", "Events to pass over. Default: 0.", type="integer"),
)
_TEXT = "Ordered by time, then by arrival. An event sent again counts once; a job keeps its newest 100,000."

ENDPOINTS = (
    Endpoint(
        name="getJobEvents",
        tag="events",
        method="GET",
        path="/jobs/{job}/events",
        action="jobs:read",
        summary="What happened to a job and its replicas",
        text=_TEXT,
        work=_of_job,
        answer=JobEvents,
        queries=(Query("replica", "Only these replicas.", many=True, example="worker-0"), *_QUERIES, PROJECT),
        paths=JOB_PATH,
    ),
    Endpoint(
        name="getNodeEvents",
        tag="events",
        method="GET",
        path="/nodes/{node}/events",
        action="nodes:read",
        summary="What happened on a node",
        text=_TEXT,
        work=_of_node,
        answer=NodeEvents,
        queries=(
            *_QUERIES,
            Query("cluster", "The node's cluster, where nodes of several have the same name."),
            PROJECT,
        ),
        paths={"node": "The node's name."},
    ),
)
