"""Tests of offline files of Weights & Biases, written byte by byte as LevelDB's log and protocol buffers."""

import contextlib
import io
import json
import math
import struct
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobmeter.cli.loading.files import read
from jobmeter.cli.loading.rows import BadRowError, RowSource
from jobmeter.cli.loading.wandb import read_wandb
from jobmeter.errors import InvalidRequestError, JobmeterError
from jobmeter.model.job import JobState

START = b":W&B\xe1\xbe\x00"


def varint(number: int) -> bytes:
    out = b""
    while number > 127:
        out, number = out + bytes([number & 127 | 128]), number >> 7
    return out + bytes([number])


def field(number: int, value: bytes | str | int) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def item(path: list[str] | str, value: Any) -> bytes:
    keys = field(1, path) if isinstance(path, str) else b"".join(field(2, key) for key in path)
    return keys + field(16, json.dumps(value))


def log(records: list[bytes], cut: int | None = None) -> bytes:
    out = START
    for whole in records:
        begin, record = True, whole
        while begin or record:
            room = 32_768 - len(out) % 32_768
            if room < 7:
                out += bytes(room)
                continue
            part, record = record[: room - 7], record[room - 7 :]
            kind = (1 if not record else 2) if begin else (4 if not record else 3)
            out += struct.pack("<IHB", zlib.crc32(bytes([kind]) + part), len(part), kind) + part
            begin = False
    return out[:cut]


def run(job: str = "u0mi09ue", start: int = 1_800_000_000, **config: Any) -> bytes:
    made = field(1, job) + field(3, "vision") + field(8, "first") + field(10, "a") + field(17, field(1, start))
    made += field(4, b"".join(field(1, item(key, value)) for key, value in config.items()))
    return field(17, made)


def history(number: int, seconds: float, /, **values: Any) -> bytes:
    items = [item(["_timestamp"], seconds), item(["_step"], number)]
    items += [item(name.split("."), value) for name, value in values.items()]
    return field(2, b"".join(field(1, one) for one in items) + field(2, field(1, number)))


def end(code: int) -> bytes:
    return field(18, field(1, code))


def samples(data: bytes, **options: Any) -> tuple[dict[str, list[tuple[int, float]]], Any, int]:
    found: dict[str, list[tuple[int, float]]] = {}
    record, skipped = None, 0
    for block in read_wandb(io.BytesIO(data), RowSource("run.wandb", **options)):
        skipped += block.skipped
        for one in block.records:
            record = one
        if block.rows is None:
            continue
        metrics = block.rows.names["metric"]
        for code, time, value in zip(metrics.codes, block.rows.time, block.rows.value, strict=True):
            found.setdefault(metrics.values[code], []).append((int(time), float(value)))
    return found, record, skipped


def test_a_run_is_a_job_with_its_history():
    records = [run(lr=0.1, _wandb={}), *(history(step, 1_800_000_001 + step, loss=1 / (step + 1)) for step in range(3))]
    found, record, _ = samples(log([*records, end(0)]))
    assert found["app.loss"] == [(1_800_000_001_000 + 1000 * step, 1 / (step + 1)) for step in range(3)]
    assert [value for _, value in found["app.step"]] == [0, 1, 2]
    assert (record.job_id, record.name, record.state, record.exit_code) == ("u0mi09ue", "first", JobState.SUCCEEDED, 0)
    assert (record.start, record.end) == (1_800_000_000_000, 1_800_000_003_000)
    assert record.labels == {"experiment": "vision", "tags": "a"}
    assert record.extra["wandb"]["config"] == {"lr": 0.1}


@pytest.mark.parametrize(
    ("ending", "state", "code"),
    [([end(1)], JobState.FAILED, 1), ([end(2**64 - 9)], JobState.FAILED, -9), ([], JobState.UNKNOWN, None)],
)
def test_the_end_of_a_run(ending, state, code):
    _, record, _ = samples(log([run(), *ending]))
    assert (record.state, record.exit_code) == (state, code)


def test_names_that_the_catalogue_does_not_allow_stay_apart_and_are_written_down():
    values = {"val/acc": 1, "val_acc": 2, "val acc": 3, "step": 4, "é": 5}
    found, record, _ = samples(log([run(), history(7, 1_800_000_001, **values)]))
    names = record.extra["wandb"]["names"]
    read_back = {names.get(metric, metric.removeprefix("app.")): rows[0][1] for metric, rows in found.items()}
    assert len(found) == 6
    assert {name: read_back[name] for name in values if name != "step"} | {"step": 4} == values
    assert found["app.step"] == [(1_800_000_001_000, 7.0)]


def test_what_is_no_number_is_left_out():
    values = {"a": True, "b": "x", "c": None, "d": math.nan, "e": [1], "f": {"g": 2}}
    found, _, _ = samples(log([run(), history(0, 1_800_000_001, **values)]))
    assert found.keys() == {"app.step", "app.f.g"}


@given(st.lists(st.tuples(st.integers(0, 3), st.floats(allow_nan=False, allow_infinity=False)), max_size=30))
def test_values_in_one_millisecond_stay_apart(values):
    records = [history(at, 1_800_000_001 + ms / 4000, loss=value) for at, (ms, value) in enumerate(values)]
    found, _, _ = samples(log([run(), *records]))
    rows = found.get("app.loss", [])
    assert [value for _, value in rows] == [value for _, value in values]
    assert len({time for time, _ in rows}) == len(rows)


@given(st.lists(st.integers(0, 70_000), max_size=8))
def test_records_of_any_length_are_read_across_blocks(sizes):
    records = [run()]
    records += [history(at, 1_800_000_001 + at, loss=at, text="x" * size) for at, size in enumerate(sizes)]
    found, _, _ = samples(log(records), batch_rows=3)
    assert found.get("app.loss", []) == [(1_800_000_001_000 + 1000 * at, at) for at in range(len(sizes))]


@given(st.data())
def test_a_file_of_a_killed_run_has_its_whole_records(data):
    records = [run(), *(history(at, 1_800_000_001 + at, loss=at) for at in range(5))]
    whole = log(records)
    cut = data.draw(st.integers(len(log(records[:1])), len(whole)))
    found, record, _ = samples(whole[:cut])
    complete = max(count for count in range(1, 7) if len(log(records[:count])) <= cut) - 1
    assert [value for _, value in found.get("app.loss", [])] == list(range(complete))
    assert record.state is JobState.UNKNOWN


@given(st.data())
def test_damage_is_found_and_may_be_skipped(data):
    whole = log([run(), *(history(at, 1_800_000_001 + at, loss=at, text="x" * 30_000) for at in range(4))])
    at = data.draw(st.integers(len(log([run()])) + 4, len(whole) - 1))
    damaged = whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]
    with contextlib.suppress(BadRowError):
        strict, _, _ = samples(damaged)
        assert len(strict.get("app.loss", [])) < 4, "a length that points behind the end"
    found, _, _ = samples(damaged, skip_bad=True)
    assert {value for _, value in found.get("app.loss", [])} <= {0, 1, 2, 3}


@given(st.binary(max_size=200), st.booleans())
def test_any_bytes_are_read_or_refused(data, begins):
    with contextlib.suppress(JobmeterError):
        samples(log([data]) if begins else data)


LEAVES = st.sampled_from([0, 2**64 - 1, b"", b"a", b"\xff", b"_timestamp", b"1800000001", b"1" + b"0" * 400, b"[NaN]"])


def parts(numbers, contents):
    """Draw messages of at most four fields."""
    pairs = st.lists(st.tuples(st.sampled_from(numbers), contents), max_size=4)
    return pairs.map(lambda fields: b"".join(field(number, content) for number, content in fields))


MESSAGES = parts([1, 2, 4, 10, 17], LEAVES | parts([1, 2, 16], LEAVES))


@given(st.lists(st.tuples(st.sampled_from([2, 5, 17, 18]), LEAVES | MESSAGES), max_size=4), st.booleans())
def test_any_message_is_read_or_refused(given_records, skip_bad):
    records = [field(number, content) for number, content in given_records]
    with contextlib.suppress(JobmeterError):
        samples(log([run(), *records]), skip_bad=skip_bad)


def value_of(name, text):
    items = [item(["_timestamp"], 1_800_000_001), field(1, name) + field(16, text)]
    return field(2, b"".join(field(1, one) for one in items))


@pytest.mark.parametrize(
    ("record", "refused"),
    [
        (field(17, field(1, "j") + field(10, 5)), "field 10 is no text"),
        (field(2, field(1, field(2, 5) + field(16, "1"))), "field 2 is no text"),
        (value_of("n" * 501, "1"), "a name may have 500 characters"),
        (value_of("n" * 300, '{"' + "m" * 300 + '":1}'), "a name may have 500 characters"),
        (value_of("n", '{"a":' * 600 + "1" + "}" * 600), "a name may have 500 characters"),
    ],
    ids=["tag", "key", "name", "names", "depth"],
)
def test_what_is_refused(record, refused):
    with pytest.raises(BadRowError, match=refused):
        samples(log([run(), record]))


@pytest.mark.parametrize("text", ["1" + "0" * 400, '{"a":' * 5000 + "1" + "}" * 5000], ids=["number", "depth"])
def test_a_value_beyond_every_number_is_left_out(text):
    found, _, _ = samples(log([run(), value_of("x", text)]))
    assert found.keys() <= {"app.step"}


def test_a_configuration_has_a_limit(monkeypatch):
    monkeypatch.setattr("jobmeter.cli.loading.wandb._MAX_RECORD", 100_000)
    updates = [field(5, field(1, item("a", "x" * 30_000))) for _ in range(4)]
    assert samples(log([run(), *updates[:3]]))[1].extra["wandb"]["config"] == {"a": "x" * 30_000}
    with pytest.raises(BadRowError, match="configuration"):
        samples(log([run(), *updates]))


def test_a_record_without_room_for_the_names_has_none():
    values = {f"val/{number}/{'x' * 100}": number for number in range(2_000)}
    found, record, _ = samples(log([run(lr=0.1), history(0, 1_800_000_001, **values)]))
    assert len(found) == 2_001
    assert record.extra == {"wandb": {}}


def test_the_format_is_detected_by_the_name_or_the_beginning(tmp_path):
    for name in ("run-1.wandb", "other"):
        (tmp_path / name).write_bytes(log([run()]))
        (block,) = read(str(tmp_path / name), None, RowSource(name), lambda _: None)
        assert [one.job_id for one in block.records] == ["u0mi09ue"]


def test_another_file_is_refused():
    with pytest.raises(InvalidRequestError, match="no offline file"):
        samples(b"PAR1")
    with pytest.raises(InvalidRequestError, match="no run"):
        samples(START)
