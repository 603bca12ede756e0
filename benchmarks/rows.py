"""All rows of the table in their order. ``--only`` takes a key or the first parts of one."""

from benchmarks.row import AS_MANY, FASTER, HALF, HALF_AS_MANY, MORE, NO_MORE, TENTH, Better, Row, at_least, limit

_MANY = Better.HIGHER

ROWS: tuple[Row, ...] = (
    Row("live.p50", "live, never repeated, its samples arriving, p50", "ms", bar=FASTER),
    Row("live.p99", "live, never repeated, its samples arriving, p99", "ms"),
    Row("live.rate", "the same, 16 connections", "answers/s", _MANY, MORE),
    Row("live.rate.p99", "the same, 16 connections, p99", "ms"),
    Row("live.rate.client", "the same, 16 connections: CPU of the client", "% of a core", None),
    Row("live.cached", "live, cached on both sides, p50", "ms"),
    Row("live.cached.rate", "live, cached on both sides, 16 connections", "answers/s", _MANY),
    Row("live.vendor", "live through PAI-DLC GetJobMetrics, 16 replicas, p50", "ms"),
    Row("processes.p50", "live with --processes 2, p50", "ms", bar=FASTER),
    Row("processes.p99", "live with --processes 2, p99", "ms"),
    Row("processes.rate", "live with --processes 2, 16 connections", "answers/s", _MANY, MORE),
    Row("processes.rate.p99", "the same, 16 connections, p99", "ms"),
    Row("processes.rate.client", "the same, 16 connections: CPU of the client", "% of a core", None),
    Row("loaded.p50", "live while 10,000 samples/s arrive, p50", "ms"),
    Row("loaded.p99", "live while 10,000 samples/s arrive, p99", "ms", bar=NO_MORE),
    Row("busy.p50", "live on a busy machine, p50", "ms"),
    Row("busy.rate", "live on a busy machine, 16 connections", "answers/s", _MANY),
    Row("day.replica.cached", "day by replica, cached, p50", "ms", bar=HALF),
    Row("day.replica.uncached", "day by replica, uncached, p50", "ms", bar=HALF),
    Row("day.device.cached", "day by GPU, cached, p50", "ms", bar=HALF),
    Row("day.device.uncached", "day by GPU, uncached, p50", "ms", bar=HALF),
    Row("month.replica.cached", "month by replica, cached, p50", "ms", bar=FASTER),
    Row("month.replica.uncached", "month by replica, uncached, p50", "ms", bar=TENTH),
    Row("promql.instant", "PromQL: the newest values of 128 series, p50", "ms"),
    Row("promql.hour.rate", "PromQL: rate of an hour, 128 series, p50", "ms"),
    Row("promql.hour.max", "PromQL: max_over_time of an hour, 128 series, p50", "ms"),
    Row("promql.day.rate", "PromQL: sum by (rate of a day), 128 series, p50", "ms"),
    Row("promql.day.max", "PromQL: max_over_time of a day, 128 series, p50", "ms"),
    Row("promql.panel", "PromQL: live panel of 8 series, an hour at 5 minutes, p50", "ms"),
    Row("promql.panel.native", "the same panel through our own API, p50", "ms"),
    Row("import.day", "import of a day, durable here", "samples/s", _MANY, AS_MANY),
    Row("import.day.first", "day by replica, first ask after the import", "ms"),
    Row("import.month", "import of a month, durable here", "samples/s", _MANY, AS_MANY),
    Row("import.month.first", "month by replica, first ask after the import", "ms"),
    Row("import.verb.day", "jobmeter import FILE.parquet of a day, end to end", "samples/s", _MANY),
    Row("import.verb.month", "jobmeter import FILE.parquet of a month, end to end", "samples/s", _MANY),
    Row("remote.1", "remote write, 7,040 series a request, 1 connection", "samples/s", _MANY, AS_MANY),
    Row("remote.1.cpu", "the same: CPU of the server for a million", "s"),
    Row("remote.4", "remote write, 7,040 series a request, 4 connections", "samples/s", _MANY, AS_MANY),
    Row("remote.4.cpu", "the same: CPU of the server for a million", "s"),
    Row("remote.4.client", "the same: CPU of the client", "% of a core", None),
    Row("agents.rate", "bodies of 1,000 agents, 320 samples each, 16 connections", "samples/s", _MANY, HALF_AS_MANY),
    Row("agents.rate.cpu", "the same: CPU of the server for a million", "s"),
    Row("agents.rate.client", "the same: CPU of the client", "% of a core", None),
    Row("bodies.rate", "bodies of 1,000 agents with --processes 2, 16 connections", "samples/s", _MANY, HALF_AS_MANY),
    Row("bodies.rate.cpu", "the same: CPU of the server for a million", "s"),
    Row("bodies.rate.client", "the same: CPU of the client", "% of a core", None),
    Row("export.rate", "raw export of a day", "samples/s", _MANY, HALF_AS_MANY),
    Row("export.memory", "raw export: peak memory above that before", "MiB"),
    Row("bytes.raw", "bytes a raw sample, random two-decimal values", "B", bar=NO_MORE),
    Row("bytes.minutes", "the 1-minute roll-ups of them, for a raw sample", "B"),
    Row("bytes.hours", "the 1-hour roll-ups of them, for a raw sample", "B"),
    Row("bytes.folder", "the whole folder, for a raw sample", "B"),
    Row("rest.memory", "memory at rest, nothing stored", "MiB", bar=limit(300, "MiB")),
    Row("rest.processes", "the same with two worker processes", "MiB", bar=limit(200, "MiB")),
    Row("rest.start", "start-up with 6 million samples", "s", bar=limit(0.7, "s")),
    Row("rest.first", "first live answer after it", "ms", bar=limit(30, "ms")),
    Row("rest.stored", "memory after that start", "MiB"),
    Row("agent.cpu", "agent at 10 s, 8 GPUs, 500 processes (Prometheus: node_exporter): CPU", "%", bar=limit(1, "%")),
    Row("agent.memory", "the same: resident memory", "MiB", bar=limit(60, "MiB")),
    Row("agent.bytes", "the same: bytes on the wire", "KiB/s", bar=limit(4, "KiB/s")),
    Row("agent.tick", "the same: longest collection", "ms", bar=limit(200, "ms")),
    Row("agent.1s.cpu", "agent at 1 s: CPU", "%", bar=limit(4, "%")),
    Row("agent.1s.memory", "the same: resident memory", "MiB", bar=limit(60, "MiB")),
    Row("agent.1s.bytes", "the same: bytes on the wire", "KiB/s"),
    Row("agent.1s.tick", "the same: longest collection", "ms", bar=limit(200, "ms")),
    Row("program.import", "import jobmeter in a new interpreter", "ms", bar=limit(5, "ms")),
    Row("program.log.p50", "jobmeter.log, 100,000 calls a second, p50", "us", bar=limit(3, "us")),
    Row("program.log.p999", "the same, p99.9", "us", bar=limit(50, "us")),
    Row("program.time", "run time of 500 short steps, each logged, above that without", "%", bar=limit(1, "%")),
    Row("logs.lines", "log lines of one node, a day (--log-lines)", "lines", None),
    Row(
        "logs.write",
        "log lines: agents' bodies of 5,000, 8 at a time, durable",
        "lines/s",
        _MANY,
        at_least(100_000, "lines/s"),
    ),
    Row("logs.write.cpu", "the same: CPU for a million, merges included", "s"),
    Row("logs.rare", "log lines: a rare word within a day", "ms", bar=limit(300, "ms")),
    Row("logs.common", "log lines: first page of a common word", "ms", bar=limit(100, "ms")),
    Row("logs.page", "log lines: first page of a phrase without a word", "ms", bar=limit(100, "ms")),
    Row("logs.bytes", "log lines: on disk, index included", "bytes/line"),
    Row("logs.raw", "log lines: their texts", "bytes/line", None),
    Row("logs.packed", "log lines: their texts as one stream of zstd", "bytes/line", None),
    Row("findings.100", "findings of 100 running jobs: CPU for a job and round", "us"),
    Row("findings.1000", "findings of 1,000 running jobs: CPU for a job and round", "us"),
    Row("findings.idle", "the same where none has new samples: CPU for a round", "us"),
    Row("trace.verb", "jobmeter import of GenTD26, end to end", "samples/s", _MANY),
    Row("trace.raw", "bytes a raw sample, GenTD26", "B"),
    Row("trace.folder", "the whole folder for a raw sample, GenTD26", "B"),
)


def chosen(only: list[str] | None) -> list[Row]:
    """Return the rows to measure: all, or those whose key is one of ``only`` or starts with one and a full stop.

    Raises ValueError for a choice that fits no row.
    """
    if not only:
        return list(ROWS)
    for one in only:
        if not any(_fits(row, one) for row in ROWS):
            raise ValueError(f"no row {one!r}; the rows are {', '.join(row.key for row in ROWS)}")
    return [row for row in ROWS if any(_fits(row, one) for one in only)]


def _fits(row: Row, choice: str) -> bool:
    return f"{row.key}.".startswith(f"{choice}.")
