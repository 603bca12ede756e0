"""Nodes that appear, restart and fall silent, and their events."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import sqlalchemy as sa

from jobmeter.model.event import Event, EventSource, Level
from jobmeter.model.time import DAY, format_iso
from jobmeter.registry.events import make_row
from jobmeter.registry.schema import nodes

MOST = 500
"""Most nodes that one transaction marks."""
_node = nodes.c
_KEY = ("project", "cluster", "name")
_INTERVALS = 5
"""Number of its agent's intervals that a node may be silent before it counts as down."""


def make_node_events(connection: sa.Connection, rows: Sequence[Mapping[str, Any]], now_ms: int) -> list[dict[str, Any]]:
    """Return the events of nodes that describe themselves for the first time, or after a restart.

    Call it before the rows are written.
    """
    happened = []
    for row in rows:
        if row["info"] is None:
            continue
        stored = connection.execute(sa.select(_node.info).where(_match_row(row))).one_or_none()
        before, after = _info(stored.info if stored else None), _info(row["info"])
        if not before:
            happened.append(_event(row, "NodeUp", now_ms, "An agent measures the node."))
        elif before.get("boot_id") and after.get("boot_id") and before["boot_id"] != after["boot_id"]:
            since = f" at {format_iso(after['booted'])}" if isinstance(after.get("booted"), int) else ""
            happened.append(_event(row, "NodeRebooted", now_ms, f"The node restarted{since}.", Level.WARNING))
    return happened


def mark(
    connection: sa.Connection, now_ms: int, heard_since_ms: int, least_ms: int
) -> tuple[list[dict[str, Any]], bool]:
    """Mark nodes down or up. Return the events, and True if there may be more nodes to mark."""
    back = connection.execute(_select_nodes(_node.down.is_not(None), _node.last_seen > _node.down)).mappings().all()
    quiet = _select_nodes(_node.down.is_(None), _node.info.is_not(None), _node.last_seen <= now_ms - least_ms)
    silent = connection.execute(quiet).mappings().all()
    happened = []
    for row in back:
        _set(connection, row, None)
        message = f"The node reports again. It was silent since {format_iso(row['down'])}."
        happened.append(_event(row, "NodeUp", now_ms, message))
    for row in silent:
        patience = max(least_ms, _INTERVALS * _interval(row["info"]))
        if now_ms - max(row["last_seen"], heard_since_ms) < patience:
            continue
        _set(connection, row, row["last_seen"])
        if row["last_seen"] > now_ms - DAY:  # no event for a node that left long ago
            message = f"The node is silent since {format_iso(row['last_seen'])}: check it, its agent and its network."
            happened.append(_event(row, "NodeDown", now_ms, message, Level.ERROR))
    return happened, len(back) == MOST


def _select_nodes(*conditions: sa.ColumnElement[bool]) -> sa.Select[Any]:
    question = sa.select(*(_node[name] for name in (*_KEY, "last_seen", "down", "info"))).where(*conditions)
    return question.order_by(_node.last_seen, *(_node[name] for name in _KEY)).limit(MOST).with_for_update()


def _set(connection: sa.Connection, row: Mapping[Any, Any], down: int | None) -> None:
    connection.execute(sa.update(nodes).where(_match_row(row)).values(down=down))


def _match_row(row: Mapping[Any, Any]) -> sa.ColumnElement[bool]:
    return sa.and_(*(_node[name] == row[name] for name in _KEY))


def _interval(info: str | None) -> int:
    interval = _info(info).get("interval_ms")
    return interval if isinstance(interval, int) and 0 < interval <= DAY else 0


def _info(text: str | None) -> dict[str, Any]:
    found = msgspec.json.decode(text) if text else {}
    return found if isinstance(found, dict) else {}


def _event(row: Mapping[Any, Any], reason: str, now_ms: int, message: str, level: Level = Level.INFO) -> dict[str, Any]:
    return make_row(
        Event(
            time=now_ms,
            project=row["project"],
            cluster=row["cluster"],
            node=row["name"],
            source=EventSource.SERVER,
            level=level,
            reason=reason,
            message=message,
        )
    )
