"""The agent's own cost and health."""

from functools import partial

from jobmeter.model.catalog.metric import Aggregate, Kind, Metric, Scope

_gauge = partial(Metric, scope=Scope.AGENT)
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
        "How far the node's wall clock is ahead of the time of its samples: above 1 or below -1 after a step.",
        minimum=None,
    ),
    _counter("agent.samples", "{sample}", "Samples taken."),
    _gauge("agent.samples.waiting", "{sample}", "Samples of pods that wait for the name of their job."),
    _counter("agent.dropped", "{sample}", "Samples given up, by reason."),
    _counter(
        "agent.processes.missed",
        "{process}",
        "Processes that began and ended between two scans, of which nothing is known. Where the kernel's events are "
        "not read, the number of forks for which no process was found: at most so many, threads among them.",
    ),
    _gauge("agent.processes.events", "", "1 while the kernel's events find short processes, 0 where it permits none."),
    _counter("agent.log.dropped", "{line}", "Lines of system logs left out because they came faster than allowed."),
    _counter("agent.log.files.lost", "{file}", "Log files that went away before the agent could open them."),
    _counter("agent.spool.damaged", "By", "Bytes of the spool that could not be read back."),
    _gauge("agent.spool.size", "By", "Bytes on disk that wait for the server."),
)
