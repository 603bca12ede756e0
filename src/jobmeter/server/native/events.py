"""``/events``, ``/jobs/{job}/events`` and ``/nodes/{node}/events``: events with their times."""

from typing import Any

import msgspec

from jobmeter.access.decide import authorize
from jobmeter.errors import ForbiddenError, NotFoundError
from jobmeter.model.event import EventFilter, EventPage, EventSource, EventType, Level
from jobmeter.query.request import HeadQuestion, NodeRecordsQuestion
from jobmeter.server.native.arguments import CLUSTER, RANGE, REPLICA, QueryArguments
from jobmeter.server.native.bodies import EventBody, copy_fields
from jobmeter.server.native.endpoint import PROJECT, CallContext, Endpoint, make_job_ref, make_node_ref
from jobmeter.server.native.jobs import MAX_OFFSET

MAX_EVENTS = 1_000
_LEVELS = tuple(Level)


class EventList(msgspec.Struct, frozen=True):
    """A page of events. ``total`` is the number of all matches."""

    events: list[EventBody]
    total: int


class JobEvents(msgspec.Struct, frozen=True):
    """A page of a job's events. ``total`` is the number of all matches."""

    job: str
    project: str
    events: list[EventBody]
    total: int


class NodeEvents(msgspec.Struct, frozen=True):
    """A page of a node's events, including events of its replicas.

    ``total`` is the number of all matches.
    """

    node: str
    events: list[EventBody]
    total: int


HEADING = "events"
_QUERIES = (
    QueryArguments("type", f"Only these types: {', '.join(EventType)}.", many=True, example="oom"),
    QueryArguments("source", "Source of the event: state (a state changed), job, replica, node, server.", many=True),
    QueryArguments("level", "Only events of this level or above: debug, info, warning, error.", example="warning"),
    QueryArguments("contains", "Only events whose reason or message contains this text, ignoring case.", example="oom"),
    *RANGE,
    QueryArguments("order", "asc or desc (newest first). Default: asc."),
    QueryArguments("limit", f"Events in the answer, 0 to {MAX_EVENTS}. Default: 100.", type="integer"),
    QueryArguments(
        "after", "The id of the previous page's last event: continues after it, even if events arrived meanwhile."
    ),
    QueryArguments("offset", "Events to skip. Default: 0.", type="integer"),
)
_TEXT = (
    "Ordered by time, then by arrival. Repeated events count once; a job keeps its newest 100,000. `id` never "
    "changes; `type` follows from source and reason; `object` is the affected object."
)


@Endpoint(
    "getJobEvents",
    "GET /jobs/{job}/events",
    "jobs:read",
    details=_TEXT,
    queries=(REPLICA, *_QUERIES, PROJECT),
    by_resource=True,
)
def _list_job_events(context: CallContext) -> JobEvents:
    """List the events of a job and its replicas."""
    job = context.ask(HeadQuestion(make_job_ref(context)))
    replicas = frozenset(context.arguments.read_texts("replica"))
    page = _page(context, projects=frozenset({job.project}), jobs=(job.id,), replicas=replicas)
    return JobEvents(job.id, job.project, [copy_fields(EventBody, event) for event in page.events], page.total)


@Endpoint(
    "getNodeEvents",
    "GET /nodes/{node}/events",
    "nodes:read",
    details=_TEXT,
    queries=(
        *_QUERIES,
        CLUSTER,
        PROJECT,
    ),
)
def _list_node_events(context: CallContext) -> NodeEvents:
    """List the events of a node."""
    ref = make_node_ref(context)
    nodes = context.ask(NodeRecordsQuestion(ref))
    page = _page(
        context,
        projects=frozenset(node.project for node in nodes),
        nodes=frozenset({ref.name}),
        clusters=frozenset({ref.cluster} if ref.cluster else ()),
    )
    return NodeEvents(ref.name, [copy_fields(EventBody, event) for event in page.events], page.total)


@Endpoint(
    "listEvents",
    "GET /events",
    "jobs:read",
    details=f"{_TEXT} Administrators also see events of keys.",
    queries=(
        QueryArguments("job", "Only events of these jobs, by id.", many=True),
        QueryArguments("node", "Only events of these nodes.", many=True),
        QueryArguments("cluster", "Only events of these clusters.", many=True),
        REPLICA,
        *_QUERIES,
        PROJECT,
    ),
    by_resource=True,
)
def _list(context: CallContext) -> EventList:
    """List events of every kind."""
    given = context.arguments
    page = _page(
        context,
        projects=context.projects,
        jobs=given.read_texts("job"),
        replicas=frozenset(given.read_texts("replica")),
        nodes=frozenset(given.read_texts("node")),
        clusters=frozenset(given.read_texts("cluster")),
        without=_list_hidden_types(context),
    )
    return EventList([copy_fields(EventBody, event) for event in page.events], page.total)


@Endpoint("getEvent", "GET /events/{event}", "jobs:read")
def _show_event(context: CallContext) -> EventBody:
    """Show an event.

    Gives 404 for an expired event and for an event that the key may not see.
    """
    event_id = context.path["event"]
    question = EventFilter(ids=(event_id,), without=_list_hidden_types(context), limit=1)
    page = context.ask(question)
    if not page.events:
        raise NotFoundError(f"there is no event {event_id[:64]}", "event", event_id[:64])
    return copy_fields(EventBody, page.events[0])


def _list_hidden_types(context: CallContext) -> frozenset[EventType]:
    """Return the types of events that the caller may not see: events of keys, for callers who may not see keys."""
    try:
        authorize(context.principal, "keys:read", context.project)
    except ForbiddenError:
        return frozenset({EventType.KEY})
    return frozenset()


def _page(context: CallContext, **whose: Any) -> EventPage:  # noqa: ANN401 - fields of EventFilter
    given = context.arguments
    start, end = context.read_span()
    least = given.read_choice("level", {level.value: level for level in Level}, Level.DEBUG.value)
    question = EventFilter(
        **whose,
        sources=given.read_choices("source", EventSource),
        levels=frozenset() if least is Level.DEBUG else frozenset(_LEVELS[_LEVELS.index(least) :]),
        types=given.read_choices("type", EventType),
        contains=given.read_text("contains"),
        start=start,
        end=end,
        descending=given.is_descending(),
        after=given.read_text("after"),
        offset=given.read_integer("offset", 0, 0, MAX_OFFSET),
        limit=given.read_integer("limit", 100, 0, MAX_EVENTS),
    )
    return context.ask(question)
