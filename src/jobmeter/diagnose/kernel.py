"""Reads the nodes' kernel log lines that rules search: by the store's search, bounded in number."""

from collections.abc import Iterable, Sequence
from functools import lru_cache

from jobmeter.access.principal import Scope
from jobmeter.diagnose.nodes import MOST_NODES, select_faults
from jobmeter.diagnose.registry import list_rules
from jobmeter.diagnose.rule import Rule
from jobmeter.errors import InvalidRequestError, LimitExceededError, NotFoundError, QueryTimeoutError
from jobmeter.model.event import Event, EventFilter, EventType
from jobmeter.model.job import JobView
from jobmeter.model.log import LogLine
from jobmeter.model.log_query import parse_log_query
from jobmeter.model.log_tree import LogQuery, Property, matches
from jobmeter.model.time import NS_PER_MS, TimeRange
from jobmeter.query.execute import Executor
from jobmeter.query.request import LogQuestion, NodeRef

MOST_LINES = 200
"""Most lines of one node that are read from the start; with more lines, as many are read from the end."""
QUIET = 50
"""Most kernel lines over a job's life with which a node is quiet: all its lines are read."""
MOST_TASK_LINES, LEAST_LINES = 8_000, 8
"""Most lines of all nodes of a task; also the least number of lines of one node that a rule reads."""
SIGKILLED = 128 + 9
"""Exit status of a replica that SIGKILL ended."""
_KILL_MS = 30_000
"""Most time between a line of the kernel about a kill and the recorded end of the killed replica."""
MOST_FAULTS = 200
"""Faults of devices that are read, the last ones: those that may have ended the job are among them."""
_KERNEL = Property("facility", ("kern",))


def read_kernel_lines(executor: Executor, scope: Scope, view: JobView, span: TimeRange) -> Sequence[LogLine]:
    """Read kernel log lines in order of time; empty for a caller that may only see the job.

    Lines for rules about nodes are always included. Faults of devices are included if the job had a device on that
    node, and kills if the process belonged to the job. So a neighbour's fault is not reported for this job.
    """
    if scope.job is not None:
        return ()
    nodes = list(dict.fromkeys(replica.node for replica in view.replicas if replica.node))[:MOST_NODES]
    with_devices = {one.node for one in view.allocations}
    found: list[LogLine] = []
    for node in nodes:
        try:
            lines = _search(executor, scope, NodeRef(node, project=view.job.project), span)
        except (NotFoundError, LimitExceededError, QueryTimeoutError):
            continue  # a node without an agent, or too much to search: the other rules still run
        found += [line for line in lines if _concerns(line, view, devices=node in with_devices)]
    return sorted(found, key=lambda line: line.order)


def read_task_lines(
    executor: Executor, scope: Scope, nodes: Iterable[NodeRef], span: TimeRange, which: Sequence[Rule]
) -> tuple[list[LogLine], list[str]]:
    """Read the first lines of each node's kernel log that match each rule's search, in order of time.

    Each line has its node as its replica. Also returns a sentence for each node that could not be searched, with the
    reason.
    """
    searching = [rule for rule in which if rule.kernel]
    refs = list(nodes)
    most = min(MOST_LINES, max(LEAST_LINES, MOST_TASK_LINES // max(1, len(refs) * len(searching))))
    found: dict[object, LogLine] = {}
    failures: list[str] = []
    for ref in refs:
        for rule in searching:
            try:
                lines = _lines_of(executor, scope, ref, span, query_of((rule,)), most)
            except NotFoundError:  # the node was deleted meanwhile
                break
            except (LimitExceededError, QueryTimeoutError) as error:
                failures.append(f"the kernel's log of {ref.name} was not searched: {error.message}")
                break
            found.update(((ref.name, line.order), line) for line in lines)
    return sorted(found.values(), key=lambda line: line.order), failures


@lru_cache(maxsize=64)
def query_of(which: tuple[Rule, ...]) -> LogQuery:
    """Build the search for kernel log lines that the rules need."""
    wanted = " OR ".join(f"({rule.kernel})" for rule in which if rule.kernel)
    query = parse_log_query(f"facility:kern AND ({wanted})")
    if query is None:
        raise InvalidRequestError("no rule reads the kernel's log", "query")
    return query


def _search(executor: Executor, scope: Scope, ref: NodeRef, span: TimeRange) -> Sequence[LogLine]:
    """Read the lines of a node's kernel log that match any rule's search.

    If the log is short, all lines are read and matched here. The reason: the engine needs forty milliseconds just to
    parse the conditions of all rules, and a job may have many nodes.
    """
    wanted = query_of(list_rules())
    lines = _lines_of(executor, scope, ref, span, _KERNEL, QUIET + 1)
    if len(lines) > QUIET:
        return _read_both_ends(executor, scope, ref, span, wanted)
    return [line for line in lines if matches(wanted, line)]


def _read_both_ends(
    executor: Executor, scope: Scope, ref: NodeRef, span: TimeRange, query: LogQuery
) -> Sequence[LogLine]:
    """Read the first and the last lines. Otherwise a link that flaps all the time would hide the cause of the end."""
    first = _lines_of(executor, scope, ref, span, query, MOST_LINES)
    if len(first) < MOST_LINES:
        return first
    last = _lines_of(executor, scope, ref, span, query, MOST_LINES, descending=True)
    return list({line.order: line for line in (*first, *last)}.values())


def _lines_of(
    executor: Executor,
    scope: Scope,
    ref: NodeRef,
    span: TimeRange,
    query: LogQuery,
    most: int,
    *,
    descending: bool = False,
) -> Sequence[LogLine]:
    start, end = span.start_ms * NS_PER_MS, span.end_ms * NS_PER_MS
    question = LogQuestion(ref=ref, query=query, start_ns=start, end_ns=end, limit=most, descending=descending)
    return executor.run(question, scope).lines


def read_node_faults(executor: Executor, scope: Scope, view: JobView, span: TimeRange) -> list[Event]:
    """Read events about devices of nodes while the job had devices there.

    In order of time; empty for a caller that may only see the job.
    """
    nodes = frozenset(one.node for one in view.allocations)
    if scope.job is not None or scope.grant is not None or not nodes:
        return []
    question = EventFilter(
        projects=frozenset({view.job.project}),
        nodes=nodes,
        types=frozenset({EventType.DEVICE_FAULT}),
        start=span.start_ms,
        end=span.end_ms,
        descending=True,
        limit=MOST_FAULTS,
    )
    return select_faults(view, [*reversed(executor.run(question, scope).events)])


def _concerns(line: LogLine, view: JobView, *, devices: bool) -> bool:
    if line.job:
        return line.job == view.job.id
    killed = _kills(line, view)
    return any(
        rule.of_nodes or (devices and rule.of_devices) or (killed and rule.of_kills)
        for rule in list_rules()
        if rule.kernel and matches(query_of((rule,)), line)
    )


def _kills(line: LogLine, view: JobView) -> bool:
    """True if SIGKILL ended a replica of the job on the line's node at about that time."""
    return any(
        replica.exit_code == SIGKILLED
        and replica.node == line.node
        and replica.end is not None
        and abs(replica.end - line.time_ns // NS_PER_MS) <= _KILL_MS
        for replica in view.replicas
    )
