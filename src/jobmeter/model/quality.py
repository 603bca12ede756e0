"""The quality of a job's stored samples: gaps, late samples, wrong clocks."""

import msgspec


class Gap(msgspec.Struct, frozen=True, kw_only=True):
    """Samples of a replica are missing, though it has some before and after. Times in epoch milliseconds.

    There is none strictly between ``start`` and ``end``; or, where ``exact`` is false, ``missing`` samples are missing
    somewhere between them. ``agent_away`` is true where the agent of its node is known to have stored no sample of
    itself either.
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
    """How well one attempt of a replica was measured, judged by the samples of one metric. Times in epoch ms.

    ``interval`` is its own sampling interval in milliseconds, the usual one over its life; ``missing`` counts the
    samples that its gaps lack. ``coverage`` is the share (0 to 1) of the time from its first to its last sample that is
    in no gap. Both are None where they cannot be computed: there are fewer than four samples, or it lived for too few
    steps. A replica that ran without samples has an empty metric.
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


class Stretch(msgspec.Struct, frozen=True):
    """An interval from ``start`` to ``end``, in epoch milliseconds."""

    start: int
    end: int


class NodeQuality(msgspec.Struct, frozen=True, kw_only=True):
    """The health of the agent on a node of the job during the job's life, by its own metrics.

    ``away``: it measured nothing of itself while a replica was there. ``late``: samples waited for the server on its
    disk all the while, for a minute and a step or more, so that those taken then arrived late, at most by the length of
    the stretch. Each are the longest 100, in order of time. ``dropped`` counts samples that it dropped, by reason
    (``refused``: the server did not take them; ``spool.full``); ``damaged_bytes`` of its spool could not be read back.
    ``clock_offset`` is how many seconds the node's clock was ahead (negative: behind) of the time of its samples, at
    the most; None where nobody measured it.
    """

    node: str
    cluster: str = ""
    away: list[Stretch] = []
    late: list[Stretch] = []
    dropped: dict[str, int] = {}
    damaged_bytes: int = 0
    clock_offset: float | None = None


class DamagedRows(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the store that cannot be read and may have held samples of the job; None: unknown.

    ``rows``: how many rows it had, of any job. With ``at_most`` the number is an upper bound.
    """

    table: str
    part: str
    reason: str = ""
    rows: int | None = None
    at_most: bool = False
    start: int | None = None
    end: int | None = None


class JobQuality(msgspec.Struct, frozen=True, kw_only=True):
    """How complete what is stored of a job is, from ``start`` to ``end`` (epoch ms), looked at in steps of ``step`` ms.

    ``complete``: whether nothing is known to be missing; None where nothing of it can be judged. ``coverage`` is that
    of its replicas together. ``gaps`` are the longest 1,000 of ``gap_count``, in order of time. ``nodes`` None: the
    caller may not see nodes; ``nodes_total`` is how many the job was on, of which 256 are examined. ``ahead`` is by how
    many milliseconds its newest sample is ahead of the server's clock, 0 where it is not. ``sentences`` state the
    problems, the worst first; empty where there are none.
    """

    job: str
    project: str
    start: int = 0
    end: int = 0
    step: int = 0
    complete: bool | None = None
    coverage: float | None = None
    replicas: list[ReplicaQuality] = []
    gaps: list[Gap] = []
    gap_count: int = 0
    nodes: list[NodeQuality] | None = None
    nodes_total: int = 0
    damaged: list[DamagedRows] = []
    ahead: int = 0
    sentences: list[str] = []
