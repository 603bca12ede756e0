"""Quality of a job's stored samples: gaps, late samples, wrong clocks."""

import msgspec


class SampleGap(msgspec.Struct, frozen=True, kw_only=True):
    """Missing samples of a replica that has some before and after. Times in epoch milliseconds.

    No sample lies strictly between ``start`` and ``end``; or, if ``exact`` is false, ``missing`` samples are missing
    somewhere between them. ``agent_away`` is true if the agent of its node is known to have stored no sample of itself
    either.
    """

    replica: str
    attempt: int = 0
    node: str = ""
    start: int
    end: int
    missing: int
    exact: bool = True
    agent_away: bool = False


class ReplicaQuality(msgspec.Struct, frozen=True, kw_only=True):
    """Measurement quality of one attempt of a replica, by the samples of one metric. Times in epoch ms.

    ``interval`` is its usual sampling interval in milliseconds over its life; ``missing`` counts the samples missing in
    gaps. ``coverage`` is the share (0 to 1) of the time from its first to its last sample without gaps. Both are absent
    if they cannot be computed: with fewer than four samples, or too few steps. A replica that ran without samples has
    an empty metric.
    """

    replica: str
    attempt: int = 0
    node: str = ""
    metric: str = ""
    first: int | None = None
    last: int | None = None
    interval: int | None = None
    samples: int = 0
    missing: int = 0
    gaps: int = 0
    coverage: float | None = None


class MeasuredStretch(msgspec.Struct, frozen=True):
    """An interval from ``start`` to ``end``, in epoch milliseconds."""

    start: int
    end: int


class NodeQuality(msgspec.Struct, frozen=True, kw_only=True):
    """Health of the agent on a node of the job during the job's life, by its own metrics.

    ``away``: the agent did not measure itself while a replica ran on the node. ``late``: samples waited on its disk for
    a minute and a step or more, so that they arrived late by at most the length of the stretch. Both list the longest
    100, in order of time. ``dropped`` counts dropped samples by reason (``refused``: by the server; ``spool.full``);
    ``damaged_bytes`` of its spool could not be read. ``clock_offset`` is the largest lead in seconds (negative: lag) of
    the node's clock over the time of its samples; absent if not measured.
    """

    node: str
    cluster: str = ""
    away: list[MeasuredStretch] = []
    late: list[MeasuredStretch] = []
    dropped: dict[str, int] = {}
    damaged_bytes: int = 0
    clock_offset: float | None = None


class DamagedRows(msgspec.Struct, frozen=True, kw_only=True):
    """Unreadable part of the store that may have held samples of the job; None: unknown.

    ``rows``: its number of rows, of any job. With ``at_most`` the number is an upper bound.
    """

    table: str
    part: str
    reason: str = ""
    rows: int | None = None
    at_most: bool = False
    start: int | None = None
    end: int | None = None


class JobQuality(msgspec.Struct, frozen=True, kw_only=True):
    """Completeness of a job's stored data, from ``start`` to ``end`` (epoch ms), evaluated in steps of ``step`` ms.

    ``complete`` is true if nothing is known to be missing; absent if it cannot be judged. ``coverage`` covers all
    replicas. ``gaps`` are the longest 1,000 of ``gap_count``, in order of time. ``nodes`` is absent if the caller may
    not see nodes; ``nodes_total`` is the number of the job's nodes, of which 256 are examined. ``ahead`` is the lead in
    milliseconds of its newest sample over the server's clock, at least 0. ``sentences`` state the problems, worst
    first; empty without problems.
    """

    job: str
    project: str
    start: int = 0
    end: int = 0
    step: int = 0
    complete: bool | None = None
    coverage: float | None = None
    replicas: list[ReplicaQuality] = []
    gaps: list[SampleGap] = []
    gap_count: int = 0
    nodes: list[NodeQuality] | None = None
    nodes_total: int = 0
    damaged: list[DamagedRows] = []
    ahead: int = 0
    sentences: list[str] = []
