"""Tests of the frame decoder against a writer made from the documentation: equal values, and clear refusals."""

import struct
import zlib
from contextlib import suppress
from dataclasses import replace

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support import frames as write

from jobmeter.errors import InvalidRequestError, LimitExceededError
from jobmeter.model.sample import Sample
from jobmeter.model.series import Series
from jobmeter.model.series_table import SeriesTable
from jobmeter.settings import Limits
from jobmeter.wire.native.decode import SMALL_BYTES, decode, read_columns, resolve_columns
from jobmeter.wire.native.encode import make_samples_frame
from jobmeter.wire.native.series_lists import DIGEST_KEY, ListDigester, SeriesListCache

names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,20}", fullmatch=True)
maybe = st.just("") | names
labels = st.dictionaries(
    st.from_regex(r"[a-z_][a-z0-9_]{0,8}", fullmatch=True), st.text("abcäö/ =", max_size=12), max_size=4
).map(lambda found: tuple(sorted(found.items())))
series = st.builds(
    Series,
    metric=st.sampled_from(["cpu.usage", "gpu.utilization", "app.loss"]),
    project=st.sampled_from(["default", "p-1"]),
    cluster=maybe,
    node=maybe,
    device=maybe,
    job=maybe,
    replica=maybe,
    attempt=st.integers(0, 2**31 - 1),
    labels=labels,
)
points = st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False)), max_size=5)
frames = st.lists(st.tuples(series, points), max_size=4)

ONE = Series("cpu.usage", job="j", replica="worker-0")
BODY = write.frame(write.payload([(ONE, [(1_000, 1.5), (2_000, 2.5)])]))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(frames, st.sampled_from([0, 1, 2])), min_size=1, max_size=3))
def test_what_was_written_is_read(written):
    body = b"".join(write.frame(write.payload(rows), codec=codec) for rows, codec in written)
    decoded = decode(body)
    assert decoded.records == []
    for batch, (rows, _) in zip(decoded.batches, written, strict=True):
        assert list(batch.series) == list(dict.fromkeys(one for one, _ in rows))
        assert [batch.series[at] for at in batch.index] == [one for one, samples in rows for _ in samples]
        assert batch.time.tolist() == [time for _, samples in rows for time, _ in samples]
        assert batch.value.tolist() == [value for _, samples in rows for _, value in samples]
        assert [column.dtype.str for column in (batch.index, batch.time, batch.value)] == ["<u4", "<i8", "<f8"]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(series, st.integers(0, 2**62), st.floats(allow_nan=False, allow_infinity=False)), max_size=8))
def test_what_the_agent_s_encoder_writes_is_read(rows):
    batch = decode(make_samples_frame([Sample(*row) for row in rows])).batches[0]
    read = [
        (batch.series[index], time, value)
        for index, time, value in zip(batch.index.tolist(), batch.time.tolist(), batch.value.tolist(), strict=True)
    ]
    order = list(dict.fromkeys(row[0] for row in rows))
    assert read == sorted(rows, key=lambda row: order.index(row[0]))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(frames, st.sampled_from(["p-1", "p-2"])), max_size=6))
def test_a_list_of_series_that_comes_again_is_the_same_in_its_project(sent):
    for rows, project in sent:
        unnamed = [(replace(one, project=""), samples) for one, samples in rows]
        for _ in range(2):
            (batch,) = decode(write.frame(write.payload(unnamed)), project).batches
            assert {one.project for one in batch.series} <= {project}
            assert [batch.series[at] for at in batch.index] == [
                replace(one, project=project) for one, samples in rows for _ in samples
            ]
            assert batch.keys.series.tolist() == [one.id for one in batch.series]
            assert batch.keys.job.tolist() == [one.job_key for one in batch.series]


def test_series_that_are_cached_do_not_hide_damage_behind_them():
    payload = write.payload([(ONE, [(1_000, 1.5), (2_000, 2.5)])])
    decode(write.frame(payload))
    for odd in (payload + bytes(4), payload[:-4]):
        with pytest.raises(InvalidRequestError):
            decode(write.frame(odd))
    more = payload[:4] + struct.pack("<I", 3) + payload[8:] + bytes(16)
    with pytest.raises(InvalidRequestError, match="add up"):
        decode(write.frame(more))


@pytest.mark.parametrize("series", [0, 2, 5])
def test_the_bytes_of_a_cached_list_cannot_be_another_number_of_series(series):
    cache = SeriesListCache(SeriesTable())
    decode(write.frame(write.payload([(ONE, [(1_000, 1.5)])])), cache=cache)
    described = write.payload([(ONE, [])])[8:-4]
    counts = struct.pack(f"<{series}I", *[1] * series)
    odd = write.frame(struct.pack("<II", series, series) + described + counts + bytes(16 * series))
    with pytest.raises(InvalidRequestError):
        decode(odd, cache=cache)
    with suppress(InvalidRequestError):
        assert resolved(odd, cache, cache.digester) is None


def resolved(body, cache, digester, project="default"):
    """Return the batches of a small body, read with a digester; None if the cache lacks a list."""
    frames = read_columns(body, Limits(), digester)
    assert frames is not None
    return resolve_columns(frames, project, cache)


def test_columns_find_their_list_by_the_key_of_the_process_that_has_it_and_in_its_project_only():
    cache = SeriesListCache(SeriesTable())
    body = write.frame(write.payload([(ONE, [(1_000, 1.5)])]))
    (batch,) = decode(body, cache=cache).batches
    same, other = ListDigester(DIGEST_KEY), ListDigester(bytes(32))
    (found,) = resolved(body, cache, same)
    assert (found.keys, found.value.tolist()) == (batch.keys, [1.5])
    assert resolved(body, cache, same, "else") is None
    assert resolved(body, cache, other) is None


def test_columns_of_a_body_that_inflates_beyond_the_bound_are_not_read():
    samples = write.payload([(ONE, [(1_000 + at, 1.0) for at in range(10_000)])])
    body = write.frame(samples, codec=1) * 4
    assert len(body) < SMALL_BYTES
    assert read_columns(body, Limits(), ListDigester()) is None
    assert len(decode(body).batches) == 4


@settings(max_examples=150, deadline=None)
@given(st.data(), st.sampled_from([0, 1, 2]))
def test_damage_is_always_an_invalid_request(data, codec):
    body = write.frame(write.payload([(ONE, [(1_000, 1.5)]), (Series("cpu.limit"), [])]), codec=codec)
    if data.draw(st.booleans()):
        damaged = body[: data.draw(st.integers(0, len(body) - 1))]
    else:
        bit = data.draw(st.integers(0, 8 * len(body) - 1))
        changed = bytearray(body)
        changed[bit // 8] ^= 1 << bit % 8
        damaged = bytes(changed)
    with pytest.raises(InvalidRequestError) as caught:
        decode(damaged)
    assert caught.value.field


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=200), st.sampled_from([1, 2]), st.sampled_from([0, 1, 2]))
def test_any_payload_under_a_right_checksum_is_read_or_refused(payload, kind, codec):
    with suppress(InvalidRequestError):
        decode(write.frame(payload, kind=kind, codec=codec))


@settings(deadline=None)
@given(st.data())
def test_a_changed_payload_under_a_right_checksum_is_read_or_refused(data):
    payload = bytearray(write.payload([(ONE, [(1_000, 1.5), (2_000, 2.5)])]))
    for _ in range(data.draw(st.integers(1, 4))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    with suppress(InvalidRequestError):
        batch = decode(write.frame(bytes(payload))).batches[0]
        assert len(batch.index) == len(batch.time) == len(batch.value)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        pytest.param(b"", "body", id="empty body"),
        pytest.param(BODY[:10], "body", id="cut header"),
        pytest.param(BODY[:-1], "body", id="cut payload"),
        pytest.param(BODY + b"x", "body", id="trailing byte"),
        pytest.param(write.frame(b"x", magic=b"MJ"), "frame", id="magic"),
        pytest.param(write.frame(b"x", version=2), "frame", id="version"),
        pytest.param(write.frame(b"x", kind=4), "frame", id="kind"),
        pytest.param(b"JM\x01\x01\x03" + BODY[5:], "frame", id="codec"),
        pytest.param(write.frame(b"x", zero=b"\0\0\1"), "frame", id="reserved bytes"),
        pytest.param(write.frame(b"x", checksum=1), "frame", id="checksum"),
        pytest.param(write.frame(b"x", size=2), "frame", id="size of an unpacked payload"),
        pytest.param(write.frame(b""), "frame", id="empty frame"),
        pytest.param(write.frame(struct.pack("<II", 0, 0) + b"x"), "frame", id="bytes after the columns"),
        pytest.param(write.frame(struct.pack("<II", 0, 1)), "frame", id="samples without room"),
        pytest.param(write.frame(struct.pack("<II", 2**31, 0)), "series", id="series without room"),
        pytest.param(write.frame(b"{]", kind=2), "", id="records that are no JSON"),
        pytest.param(write.frame(b'{"jobs":[{"job_id":"a/b"}]}', kind=2), "job_id", id="record with a bad name"),
        pytest.param(
            write.frame(b'{"nodes":[{"name":"n","info":' + b"[" * 99_999, kind=2), "nodes[0].info", id="deep JSON"
        ),
        pytest.param(write.frame(b'"\xff\xff"', kind=2), "", id="records that are no UTF-8"),
    ],
)
def test_refusals_name_the_part(body, field):
    with pytest.raises(InvalidRequestError) as caught:
        decode(body)
    assert caught.value.field == field


def _described(*texts: str | bytes) -> bytes:
    data = b"".join(
        struct.pack("<H", len(one)) + one for one in (one if isinstance(one, bytes) else one.encode() for one in texts)
    )
    return write.frame(struct.pack("<III", 1, 0, len(data)) + data + struct.pack("<I", 0))


@pytest.mark.parametrize(
    ("body", "field"),
    [
        pytest.param(_described("cpu.usage", "", "", "", "", "", ""), "series", id="too few texts"),
        pytest.param(_described("cpu.usage", "", "", "", "", "", "", "0", "odd"), "series", id="label without value"),
        pytest.param(_described("cpu.usage", "", "", "", "", "", "", "-1"), "attempt", id="negative attempt"),
        pytest.param(_described("cpu.usage", "", "", "", "", "", "", "٣"), "attempt", id="digits of another script"),
        pytest.param(_described("cpu.usage", "", "", "", "", "", "", "9999999999"), "attempt", id="huge attempt"),
        pytest.param(_described("cpu usage", "", "", "", "", "", "", "0"), "metric", id="metric name"),
        pytest.param(_described("cpu.usage", "a_b", "", "", "", "", "", "0"), "project", id="project name"),
        pytest.param(_described("cpu.usage", "", "", "../x", "", "", "", "0"), "node", id="node name"),
        pytest.param(_described("cpu.usage", "", "", "", "", "a/b", "", "0"), "job_id", id="job id"),
        pytest.param(_described("cpu.usage", "", "", "", "", "", b"\xff\xff", "0"), "series", id="not UTF-8"),
        pytest.param(_described("m", "", "", "", "", "", "", "0", "b", "1", "a", "2"), "labels", id="unsorted labels"),
        pytest.param(_described("m", "", "", "", "", "", "", "0", *["x"] * 80), "series", id="too many labels"),
    ],
)
def test_descriptors_are_checked(body, field):
    with pytest.raises(InvalidRequestError) as caught:
        decode(body)
    assert caught.value.field == field


def test_an_empty_project_is_the_key_s_own():
    body = _described("cpu.usage", "", "", "", "", "j", "", "")
    assert decode(body, "team-a").batches[0].series[0].project == "team-a"
    assert decode(body, "team-b").batches[0].series[0].project == "team-b"


def test_counts_must_add_up():
    payload = bytearray(write.payload([(ONE, [(1_000, 1.5)]), (Series("cpu.limit"), [(1_000, 1.0)])]))
    counts = len(payload) - 2 * 16 - 8
    payload[counts] = 2
    with pytest.raises(InvalidRequestError) as caught:
        decode(write.frame(bytes(payload)))
    assert caught.value.field == "series"


def test_counts_that_overflow_are_refused():
    payload = bytearray(write.payload([(ONE, []), (Series("cpu.limit"), [])]))
    payload[-8:] = struct.pack("<II", 2**32 - 1, 1)
    with pytest.raises(InvalidRequestError):
        decode(write.frame(bytes(payload)))


@pytest.mark.parametrize("codec", [1, 2])
def test_a_bomb_is_stopped_at_its_declared_size(codec):
    bomb = write.frame(bytes(50_000_000), codec=codec, size=100)
    assert len(bomb) < 60_000
    with pytest.raises(InvalidRequestError) as caught:
        decode(bomb)
    assert caught.value.field == "frame"


def test_a_stream_that_hides_its_size_is_stopped_at_the_declared_one():
    packer = zstandard.ZstdCompressor(write_content_size=False)
    packed = packer.compress(bytes(50_000_000))
    body = write.frame(b"", sent=len(packed), size=100, checksum=zlib.crc32(packed), codec=2)[:20] + packed
    body = body[:4] + b"\x02" + body[5:]
    with pytest.raises(InvalidRequestError) as caught:
        decode(body)
    assert caught.value.field == "frame"


def test_a_stream_that_hides_its_size_is_read_when_it_is_right():
    payload = write.payload([(ONE, [(1_000, 1.5)])])
    packed = zstandard.ZstdCompressor(write_content_size=False).compress(payload)
    header = struct.pack("<2sBBB3sIII", b"JM", 1, 1, 2, b"\0\0\0", len(packed), len(payload), zlib.crc32(packed))
    assert decode(header + packed).batches[0].value.tolist() == [1.5]


def test_bytes_after_a_compressed_stream_are_refused():
    for codec, packer in ((1, zlib.compress), (2, zstandard.ZstdCompressor().compress)):
        payload = write.payload([(ONE, [(1_000, 1.5)])])
        packed = packer(payload) + b"x"
        header = struct.pack(
            "<2sBBB3sIII", b"JM", 1, 1, codec, b"\0\0\0", len(packed), len(payload), zlib.crc32(packed)
        )
        with pytest.raises(InvalidRequestError):
            decode(header + packed)


@pytest.mark.parametrize(
    ("limits", "field"),
    [
        (Limits(body_bytes=30), "body"),
        (Limits(decoded_bytes=2 * (len(BODY) - 20) - 1), "frame"),
        (Limits(request_series=1), "series"),
    ],
)
def test_limits_count_over_the_whole_body(limits, field):
    with pytest.raises(LimitExceededError) as caught:
        decode(BODY + BODY, "default", limits)
    assert caught.value.field == field


def test_records_come_with_samples():
    decoded = decode(write.frame(b'{"jobs":[{"job_id":"j"}],"nodes":[{"name":"n"}]}', kind=2, codec=1) + BODY)
    assert [job.job_id for job in decoded.records[0].jobs] == ["j"]
    assert len(decoded.batches[0]) == 2
