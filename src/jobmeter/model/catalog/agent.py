"""Metrics of the agent itself: its cost and health."""

from functools import partial

from jobmeter.model.catalog.metric import Aggregate, Display, Kind, Metric, MetricScope

_gauge = partial(Metric, scope=MetricScope.AGENT, views=Display.HIDDEN)
_counter = partial(_gauge, kind=Kind.COUNTER)

METRICS: tuple[Metric, ...] = (
    _counter("agent.cpu.time", "s", "CPU time of the agent.", read_unit="{core}"),
    _gauge("agent.memory.usage", "By", "Resident memory of the agent."),
    _gauge("agent.collect.duration", "s", "Time of the last collection, by collector."),
    _gauge(
        "agent.collect.success",
        "",
        "1 when the last collection worked, 0 when it failed or hung, by collector.",
        parts=Aggregate.MIN,
    ),
    _gauge(
        "agent.clock.offset",
        "s",
        "Offset of the node's wall clock from the time of its samples: above 1 or below -1 after a step.",
        minimum=None,
    ),
    _counter("agent.samples", "{sample}", "Samples taken."),
    _gauge("agent.samples.waiting", "{sample}", "Samples of pods whose job is not known yet."),
    _counter("agent.dropped", "{sample}", "Samples dropped, by reason."),
    _counter(
        "agent.processes.missed",
        "{process}",
        "Processes that began and ended between two scans, unmeasured. If the kernel's events are "
        "not available, the number of forks without a process found: an upper bound that includes threads.",
    ),
    _gauge(
        "agent.processes.events", "", "1 while the kernel's events report short processes, 0 if they are not permitted."
    ),
    _counter("agent.log.dropped", "{line}", "Lines of system logs dropped because of the rate limit."),
    _counter("agent.log.files.lost", "{file}", "Log files that were removed before the agent could open them."),
    _counter("agent.spool.damaged", "By", "Bytes of the spool that could not be read."),
    _gauge("agent.spool.size", "By", "Bytes on disk waiting for the server."),
)
