"""Messages of a move: stored data go from one telemetry engine to another while a server uses the first one."""

from collections.abc import Sequence

import msgspec


class MoveOrder(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Target of a move. ``to`` is a DSN as in ``--store``. With ``compare`` nothing is written."""

    to: str
    compare: bool = False


class MoveStep(msgspec.Struct, frozen=True, kw_only=True):
    """Progress of a move: the next slice of a table.

    ``done`` of ``total`` slices of the table are copied in this pass, and ``rows`` rows since the begin of the move.
    ``refusing``: the server refuses writes now.
    """

    table: str
    done: int
    total: int
    rows: int
    refusing: bool = False


class MovedTable(msgspec.Struct, frozen=True, kw_only=True):
    """Comparison of a table in both engines.

    ``rows`` and ``checksum`` describe the table in the first engine. ``slices`` of it differ; they have
    ``differing_rows`` rows.
    """

    table: str
    rows: int
    checksum: str
    slices: int = 0
    differing_rows: int = 0


class MoveReport(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a move or of a comparison.

    ``copied`` counts rows, some of them several times: rows of an hour that changed were copied again. The server
    refused writes for ``refused_ms``. ``moved``: the second engine has everything, and the first one accepts no writes.
    """

    tables: Sequence[MovedTable] = ()
    copied: int = 0
    refused_ms: int = 0
    moved: bool = False


class MoveLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Line of the answer: a step, at the end the report, or the message of the error that ended the move."""

    step: MoveStep | None = None
    report: MoveReport | None = None
    error: str = ""
