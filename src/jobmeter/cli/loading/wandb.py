"""Read offline files of Weights & Biases (``run-ID.wandb``): the history, configuration and end of one run.

The file is a log of LevelDB (https://github.com/google/leveldb/blob/main/doc/log_format.md) with the checksum of zlib.
Each record is a ``Record`` of https://github.com/wandb/wandb/blob/main/wandb/proto/wandb_internal.proto.
"""

import math
import re
import struct
import zlib
from collections.abc import Iterator, Mapping
from typing import IO, Any

import msgspec
import numpy as np

from jobmeter.cli.loading.rows import BadRowError, Block, RowNames, Rows, RowSource
from jobmeter.errors import InvalidRequestError
from jobmeter.model.job import JobState
from jobmeter.model.record import MAX_EXTRA_BYTES, JobRecord, check_record
from jobmeter.model.time import MAX_TIME_MS
from jobmeter.wire.protobuf import BYTES, iterate_fields, read_varint

MAGIC = b":W&B"
REPLICA = "worker-0"
"""Replica of all samples: one file is of one process."""
_START = MAGIC + b"\xe1\xbe\x00"
_BLOCK, _HEAD = 32_768, struct.Struct("<IHB")
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_MAX_RECORD = 64 * 2**20
_HISTORY, _CONFIG, _RUN, _EXIT = 2, 5, 17, 18
_NOT_PLAIN = re.compile(r"[^A-Za-z0-9._:-]")
_STEP, _TIMESTAMP = "_step", "_timestamp"
_MOST_NAMES, _MOST_CHARACTERS = 100_000, 500
"""Most names of a run, and most characters of a name."""

Message = Mapping[int, list[Any]]
"""Fields of a message by number: bytes of a text or message, or a number."""


def read_wandb(file: IO[bytes], source: RowSource) -> Iterator[Block]:
    """Read a file: samples ``app.NAME`` with ``app.step``, then the record of the run's job.

    Raises InvalidRequestError for another file, BadRowError for damage. A file that ends inside a record is of a run
    that was killed: its whole records count.
    """
    run = _RunFile(source)
    for number, record in enumerate(_records(file, source, run), 1):
        try:
            run.take(_message(record))
        except (InvalidRequestError, msgspec.DecodeError, UnicodeDecodeError, ValueError, TypeError) as error:
            run.count_damage(f"record {number}", str(error))
        if len(run.times) >= source.batch_rows:
            yield Block(rows=run.take_rows())
    if not run.job:
        raise InvalidRequestError(f"{source.name} has no run: name the run-ID.wandb file of an offline run")
    yield Block(rows=run.take_rows() if run.times else None, records=(run.make_record(),), skipped=run.skipped)


class _RunFile:
    """Run of a file, as far as the file was read."""

    def __init__(self, source: RowSource) -> None:
        self.skipped = 0
        self.job = ""
        self.times: list[int] = []
        self._source = source
        self._values: list[float] = []
        self._codes: list[int] = []
        self._names = {_STEP: 0}
        self._metrics = ["app.step"]
        self._taken = set(self._metrics)
        self._last: dict[int, int] = {}
        self._fields: dict[str, Any] = {}
        self._config: dict[str, Any] = {}
        self._config_bytes = 0
        self._state = JobState.UNKNOWN
        self._end: int | None = None

    def count_damage(self, place: str, message: str) -> None:
        """Count a damaged record, or raise BadRowError."""
        if not self._source.skip_bad:
            raise BadRowError(f"{self._source.name}, {place}", "", message)
        self.skipped += 1

    def take(self, record: Message) -> None:
        """Add a record."""
        for content in record.get(_RUN, ()):
            self._take_run(_message(content))
        for content in record.get(_CONFIG, ()):
            self._take_config(content)
        for content in record.get(_EXIT, ()):
            code = _number(_message(content), 1)
            self._state = JobState.FAILED if code else JobState.SUCCEEDED
            self._fields["exit_code"] = code if code < 2**31 else code - 2**64
        for content in record.get(_HISTORY, ()):
            self._take_history(_message(content))

    def take_rows(self) -> Rows:
        """Return the samples since the last call."""
        count = len(self.times)
        columns = {
            "metric": RowNames(np.array(self._codes, np.int32), tuple(self._metrics)),
            "job_id": RowNames(np.zeros(count, np.int32), (self.job,)),
            "replica": RowNames(np.zeros(count, np.int32), (REPLICA,)),
        }
        time, value = np.array(self.times, np.int64), np.array(self._values, np.float64)
        self.times, self._values, self._codes = [], [], []
        return Rows(columns, time, value, lambda row: f"{self._source.name}, value {row + 1}")

    def make_record(self) -> JobRecord:
        """Return the record of the job. Names of metrics that had to be changed are in ``extra.wandb.names``.

        A configuration, then names, for which the record has no room are left out.
        """
        changed = {
            self._metrics[at]: name
            for name, at in self._names.items()
            if name != _STEP and self._metrics[at] != f"app.{name}"
        }
        config = {key: value for key, value in self._config.items() if key != "_wandb"}
        extra = next(filter(_fits_extra_limit, ({"config": config, "names": changed}, {"names": changed})), {})
        state, end = self._state, self._end
        return check_record(
            JobRecord(job_id=self.job, type="W&B", state=state, end=end, extra={"wandb": extra}, **self._fields)
        )

    def _take_run(self, run: Message) -> None:
        self.job = _text(run, 1)
        start = _message(run[17][-1]) if 17 in run else {}
        start_ms = _number(start, 1) * 1000 + _number(start, 2) // 1_000_000
        labels = {"experiment": _text(run, 3)} if _text(run, 3) else {}
        tags = _texts(run, 10)
        self._fields |= {
            "name": _text(run, 8) or self.job,
            "user": _text(run, 2) or None,
            "labels": {**labels, **({"tags": ",".join(tags)[:256]} if tags else {})},
            **({"created": start_ms, "start": start_ms} if start_ms else {}),
        }
        for config in run.get(4, ()):
            self._take_config(config)

    def _take_config(self, config: bytes) -> None:
        self._config_bytes += len(config)
        if self._config_bytes > _MAX_RECORD:
            raise InvalidRequestError(f"a configuration may have {_MAX_RECORD} bytes")
        self._config |= _items(_message(config))

    def _take_history(self, history: Message) -> None:
        if not self.job:
            raise InvalidRequestError("values come before their run")
        values = _items(history)
        seconds = values.get(_TIMESTAMP)
        if not isinstance(seconds, int | float) or not 0 <= seconds < MAX_TIME_MS / 1000:
            raise InvalidRequestError(f"{_TIMESTAMP} is missing or wrong")
        time = int(seconds * 1000)
        self._end = time if self._end is None else max(self._end, time)
        if 2 in history:
            values.setdefault(_STEP, _number(_message(history[2][-1]), 1))
        for name, given in _flatten("", values):
            value = _to_finite(given)
            if value is None or (name.startswith("_") and name != _STEP):
                continue
            code = self._code(name)
            # Values of one metric in the same millisecond get consecutive times.
            moment = max(time, self._last.get(code, -1) + 1)
            self._last[code] = moment
            self.times.append(moment)
            self._values.append(value)
            self._codes.append(code)

    def _code(self, name: str) -> int:
        found = self._names.get(name)
        if found is not None:
            return found
        if len(self._names) >= _MOST_NAMES:
            raise InvalidRequestError(f"a run may have {_MOST_NAMES} names")
        first = metric = "app." + _NOT_PLAIN.sub("_", name)[:180]
        if metric in self._taken:
            metric = f"{first}_{len(self._metrics)}"
        while metric in self._taken:
            metric += "_"
        self._taken.add(metric)
        self._names[name] = len(self._metrics)
        self._metrics.append(metric)
        return self._names[name]


def _records(file: IO[bytes], source: RowSource, run: _RunFile) -> Iterator[bytes]:
    """Yield the records of the log. A damaged one costs the rest of its block."""
    if file.read(len(_START)) != _START:
        raise InvalidRequestError(f"{source.name} is no offline file of Weights & Biases")
    left, parts, block = _BLOCK - len(_START), list[bytes](), 1
    while True:
        if left < _HEAD.size:
            file.read(left)
            left, block = _BLOCK, block + 1
        head = file.read(_HEAD.size)
        if len(head) < _HEAD.size:
            return
        checksum, size, kind = _HEAD.unpack(head)
        left -= _HEAD.size
        body = file.read(min(size, left))
        if len(body) < min(size, left):
            return
        left -= len(body)
        begins, ends = kind in {_FULL, _FIRST}, kind in {_FULL, _LAST}
        sound = len(body) == size and zlib.crc32(body, zlib.crc32(head[6:])) == checksum
        if not sound or not (begins or (parts and kind in {_MIDDLE, _LAST})):
            run.count_damage(f"block {block}", "a record is damaged")
            file.read(left)
            left, parts, block = _BLOCK, [], block + 1
            continue
        parts = [body] if begins else [*parts, body]
        if ends:
            yield b"".join(parts)
            parts = []
        elif len(parts) * _BLOCK > _MAX_RECORD:
            raise InvalidRequestError(f"{source.name} has a record of more than {_MAX_RECORD} bytes")


def _message(data: bytes) -> Message:
    found: dict[int, list[Any]] = {}
    for tag, _, content, end in iterate_fields(data, 0, len(data)):
        if tag & 7 == BYTES:
            found.setdefault(tag >> 3, []).append(data[content:end])
        elif tag & 7 == 0:
            found.setdefault(tag >> 3, []).append(read_varint(data, content, end)[0])
    return found


def _items(message: Message) -> dict[str, Any]:
    """Return the values of items: a key, or a path of keys, and JSON. NaN and infinities are None."""
    found: dict[str, Any] = {}
    for content in message.get(1, ()):
        item = _message(content)
        path = _texts(item, 2) or [_text(item, 1)]
        text = item[16][-1] if 16 in item else b"null"
        found[".".join(path)] = None if text in {b"NaN", b"Infinity", b"-Infinity"} else _json(text)
    return found


def _json(text: bytes) -> Any:  # noqa: ANN401 - any JSON
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None  # Python's JSON may have NaN inside a list.


def _to_finite(value: Any) -> float | None:  # noqa: ANN401 - any JSON
    """Return a finite number; None for any other value."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _fits_extra_limit(extra: Mapping[str, Any]) -> bool:
    try:
        return len(msgspec.json.encode({"wandb": extra})) <= MAX_EXTRA_BYTES
    except RecursionError:
        return False


def _flatten(prefix: str, values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if len(prefix) + len(name) > _MOST_CHARACTERS:
            raise InvalidRequestError(f"a name may have {_MOST_CHARACTERS} characters")
        if isinstance(value, Mapping):
            yield from _flatten(f"{prefix}{name}.", value)
        else:
            yield f"{prefix}{name}", value


def _text(message: Message, number: int) -> str:
    return _texts(message, number)[-1] if number in message else ""


def _texts(message: Message, number: int) -> list[str]:
    values = message.get(number, ())
    if not all(isinstance(value, bytes) for value in values):
        raise InvalidRequestError(f"field {number} is no text")
    return [value.decode() for value in values]


def _number(message: Message, number: int) -> int:
    value = message[number][-1] if number in message else 0
    if not isinstance(value, int):
        raise InvalidRequestError(f"field {number} is no number")
    return value
