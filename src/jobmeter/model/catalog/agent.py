"""The agent's own cost and health."""

from jobmeter.model.catalog.metric import Aggregate, Kind, Metric, Scope

_A = Scope.AGENT

METRICS: tuple[Metric, ...] = (
    Metric(
        name="agent.cpu.time",
        unit="s",
        scope=_A,
        kind=Kind.COUNTER,
        read_unit="{core}",
        text="CPU time of the agent.",
    ),
    Metric(name="agent.memory.usage", unit="By", scope=_A, text="Resident memory of the agent."),
    Metric(
        name="agent.collect.duration",
        unit="s",
        scope=_A,
        parts=Aggregate.SUM,
        text="Time of the last collection, by collector.",
    ),
    Metric(
        name="agent.collect.success",
        unit="1",
        scope=_A,
        parts=Aggregate.MIN,
        text="1 when the last collection worked, 0 when it failed or hung, by collector.",
    ),
    Metric(
        name="agent.clock.offset",
        unit="s",
        scope=_A,
        minimum=None,
        text="How far the node's wall clock is ahead of the time of its samples: above 1 or below -1 after a step.",
    ),
    Metric(name="agent.samples", unit="{sample}", scope=_A, kind=Kind.COUNTER, text="Samples taken."),
    Metric(
        name="agent.samples.waiting",
        unit="{sample}",
        scope=_A,
        text="Samples of pods that wait for the name of their job.",
    ),
    Metric(
        name="agent.dropped",
        unit="{sample}",
        scope=_A,
        kind=Kind.COUNTER,
        text="Samples given up, by reason.",
    ),
    Metric(
        name="agent.spool.damaged",
        unit="By",
        scope=_A,
        kind=Kind.COUNTER,
        text="Bytes of the spool that could not be read back.",
    ),
    Metric(name="agent.spool.size", unit="By", scope=_A, text="Bytes on disk that wait for the server."),
)
