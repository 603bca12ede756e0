"""Records events of the server itself, for example about keys and shippers."""

import logging
from typing import Any

from jobmeter.errors import JobmeterError
from jobmeter.model.event import WHOLE_SERVER, Event, EventSource, Level
from jobmeter.registry.base import Registry

_log = logging.getLogger("jobmeter.registry")


def emit(
    registry: Registry,
    now_ms: int,
    reason: str,
    message: str,
    *,
    subject: str = "",
    project: str | None = None,
    level: Level = Level.INFO,
    **whose: Any,  # noqa: ANN401 - further fields of Event
) -> None:
    """Store an event of source ``server``, now.

    A ``reason`` of ``model.event.SERVER_REASONS`` gives the event a type. ``subject`` is a kind and a name, ``key
    key-1``; ``whose`` may name ``job``, ``replica``, ``cluster``, ``node`` and ``actor``. A project of None is the
    whole server. A failure to store the event is logged and not raised, because the reported action has succeeded.
    """
    event = Event(
        time=now_ms,
        project=project or WHOLE_SERVER,
        source=EventSource.SERVER,
        level=level,
        reason=reason,
        message=message,
        subject=subject,
        **whose,
    )
    try:
        registry.add_events([event])
    except JobmeterError as error:
        _log.warning("an event could not be stored: %s (%s): %s", message, subject, error.message)
