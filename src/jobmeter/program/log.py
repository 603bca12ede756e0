"""Report the numbers of a running program: ``jobmeter.log``, ``meta``, ``span``, ``event`` and ``flush``.

Standard library only. No call waits, raises, or needs an agent. Values go into a bounded queue. A thread sends them to
the agent or the run that measures this process. Values beyond the bound are dropped and counted.
"""

import os
import time
from types import TracebackType

from jobmeter.program.report_thread import MOST, ReportThread

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_NUMBERS = frozenset({float, int, bool})
_MOST_NUMBER = 1e300
_now = time.clock_gettime_ns
_sender = ReportThread()
_queue = _sender.queue


def log(values: object = None, /, *, step: object = None, **named: object) -> None:
    """Report numbers of this moment: ``log(step=i, loss=l)``, or ``log({"val/loss": l}, step=i)``.

    Each becomes the metric ``app.NAME`` of the job. A tensor on a device is copied there and read later, so that the
    caller does not wait for the device.
    """
    try:
        if values is not None:
            named = {**values, **named}  # type: ignore[dict-item]
        for value in named.values():
            if value.__class__ not in _NUMBERS:
                named = _freeze_values(named)
                break
        if len(_queue) >= MOST:
            _sender.dropped += len(_queue[0][2])
        _queue.append((_now(_CLOCK), step, named))
        if _sender.thread is None:
            _sender.start()
    except Exception:  # noqa: BLE001 - a report must never stop the program
        _sender.dropped += 1


def log_at(seconds: float, values: "dict[str, float]", step: object = None) -> None:
    """Report numbers of an earlier moment, in seconds since the epoch: for readers of a program's output."""
    try:
        _queue.append((_now(_CLOCK) - _now(time.CLOCK_REALTIME) + int(seconds * 1e9), step, dict(values)))
        if _sender.thread is None:
            _sender.start()
    except Exception:  # noqa: BLE001 - a report must never stop the program
        _sender.dropped += 1


def meta(**facts: object) -> None:
    """Report facts about the program, once: ``meta(model="gpt-7b", flops_per_token=4.2e10)``.

    ``flops_per_token`` or ``flops_per_step``, with ``tokens`` among the logged values, gives ``app.mfu``.
    """
    try:
        _sender.note_meta({name: _fact(fact) for name, fact in facts.items()})
    except Exception:  # noqa: BLE001 - a report must never stop the program
        _sender.dropped += 1


def event(name: str, message: str = "", /, *, step: object = None, level: str = "info", **facts: object) -> None:
    """Report something that happened: ``event("resumed", step=step)``.

    ``level`` is ``debug``, ``info``, ``warning`` or ``error``. Other facts are appended to the message.
    """
    try:
        given = {**({} if step is None else {"step": step}), **facts}
        texts = [str(message), *(f"{key} {value}" for key, value in given.items())]
        _sender.note_event((_now(_CLOCK), level, str(name), ", ".join(filter(None, texts))))
    except Exception:  # noqa: BLE001 - a report must never stop the program
        _sender.dropped += 1


class SpanTimer:
    """Interval of the program: its duration is logged as ``NAME_seconds``, and its end is an event. See ``span``."""

    def __init__(self, name: str, step: object = None) -> None:
        self._name = name
        self._step = step
        self._began = _now(_CLOCK)

    def __enter__(self) -> "SpanTimer":  # noqa: PYI034 - typing takes milliseconds to import
        self._began = _now(_CLOCK)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            seconds = (_now(_CLOCK) - self._began) / 1e9
            log({f"{self._name}_seconds": seconds}, step=self._step)
            ended = "took" if kind is None else f"failed with {kind.__name__} after"
            event(self._name, f"{self._name} {ended} {seconds:.3f} s", step=self._step, level=_level(kind))
        except Exception:  # noqa: BLE001 - a report must never stop the program
            _sender.dropped += 1


def span(name: str, *, step: object = None) -> SpanTimer:
    """Measure a block: ``with jobmeter.span("checkpoint"): save()``."""
    return SpanTimer(name, step)


def flush(seconds: float = 0.5) -> bool:
    """Send the waiting values. Return True if all were sent within these seconds."""
    try:
        return _sender.flush(seconds)
    except Exception:  # noqa: BLE001 - a report must never stop the program
        return False


def _fact(value: object) -> float | str:
    """Return a finite number as it is, anything else as text."""
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _MOST_NUMBER:
        return value
    return str(value)


def _level(kind: type[BaseException] | None) -> str:
    return "info" if kind is None else "error"


def _freeze_values(values: "dict[str, object]") -> dict[str, object]:
    """Return a snapshot of the values without waiting for a device. Counts values that are not numbers as dropped."""
    found = {}
    for name, value in values.items():
        try:
            if value.__class__ in _NUMBERS or hasattr(value, "block_until_ready"):  # JAX's arrays never change
                found[name] = value
            elif hasattr(value, "detach") and value.device.type != "cpu":  # type: ignore[attr-defined]
                found[name] = value.detach().clone()
            else:
                found[name] = float(value)  # type: ignore[arg-type]
        except Exception:  # noqa: BLE001 - the value is of any type
            _sender.dropped += 1
    return found


def _reset_after_fork() -> None:
    _sender.reset()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_after_fork)
