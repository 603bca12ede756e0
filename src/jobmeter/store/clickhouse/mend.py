"""Marks roll-ups that lost a part, so that they are computed again from the remaining samples.

The hours of the part's partition are marked, as for late samples: until they are computed again, answers come from
samples. Each damaged part is marked once, which a row of ``progress`` records. A lost part of ``marks`` may have named
any hour, so every hour with complete samples is marked.
"""

import logging
import secrets
from collections.abc import Sequence
from pathlib import Path

from jobmeter.model.time import MAX_TIME_MS, Clock, TimeRange
from jobmeter.store.clickhouse.catalog import NAMELESS
from jobmeter.store.clickhouse.failures import translate_failures
from jobmeter.store.clickhouse.pool import Pool
from jobmeter.store.clickhouse.progress import read_progress, write_progress
from jobmeter.store.clickhouse.target import EngineTarget
from jobmeter.store.damage import DamagedPart

_log = logging.getLogger(__name__)
_ROLLED = frozenset({"minutes", "hours", "marks"})
_MENDED = _ROLLED | {"series"}
# Samples outlive their retention by a day: an hour inside the retention is complete.
_MARK = """
INSERT INTO marks (job, hour, id, cleared, at)
SELECT DISTINCT job, intDiv(time, 3600000) * 3600000 AS begin, {id:UInt64}, 0, {now:Int64} FROM samples
WHERE time >= {start:Int64} AND time < {end:Int64} AND time >= {now:Int64} - raw_days * 86400000
AND begin < (SELECT max(value) FROM progress WHERE name = 'intent')"""
_NAMELESS = "INSERT INTO progress SELECT {name:String}, greatest(max(time), {now:Int64}) + 86400000 FROM samples"


def mend(parts: Sequence[DamagedPart], pool: Pool, target: EngineTarget, clock: Clock) -> bool:
    """Mark the hours of lost roll-ups, and note lost descriptors.

    Returns True if rows were written: the roll-up state must be read again. Only for an engine that this process alone
    uses; in a cluster other nodes have copies.
    """
    lost = [part for part in parts if part.table in _MENDED and part.reason.startswith("broken")]
    if not lost or not target.exclusive:
        return False
    with translate_failures("mark hours whose roll-ups are lost"), pool.borrow_client() as client:
        recorded = read_progress(client)
        fresh = {name: part for part in lost if (name := _name(part)) not in recorded}
        for name, part in fresh.items():
            span = part.span or TimeRange(0, MAX_TIME_MS)
            now_ms = clock.now_ms()
            if part.table in _ROLLED:
                values = {"id": secrets.randbits(64), "now": now_ms, "start": span.start_ms, "end": span.end_ms}
                client.command(_MARK, parameters=values)
                _log.warning("roll-ups of %s are computed again, where its samples are still stored", part.summary)
            else:
                client.command(_NAMELESS, parameters={"name": NAMELESS, "now": now_ms})
                _log.warning("samples of the series in %s are found once these series are sent again", part.summary)
            write_progress(client, {name: now_ms})
    return bool(fresh)


def _name(part: DamagedPart) -> str:
    """Return a name for a damaged part with its time of creation, because names of parts repeat."""
    try:
        made = Path(part.place).stat().st_mtime_ns
    except OSError:
        made = 0
    return f"marked {part.table} {part.name} {made}"
