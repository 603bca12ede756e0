"""Tests of OpenTSDB's data points on the wire: JSON bodies, telnet lines, and the resulting samples."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobmeter.errors import InvalidRequestError
from jobmeter.model.catalog import CATALOG
from jobmeter.model.series import Series
from jobmeter.wire.opentsdb.line import MAX_LINE, Command, LineReader, Wrong
from jobmeter.wire.opentsdb.names import make_opentsdb_name, parse_opentsdb_name
from jobmeter.wire.opentsdb.point import PointRefusedError, Points, parse_number, parse_time
from jobmeter.wire.opentsdb.put import DataPoint, decode

ALL = None

# Lines of tcollector's collectors, whose sender prefixes each with put.
TCOLLECTOR = b"""\
put proc.loadavg.1min 1288946927 0.36 host=foo
put proc.stat.cpu 1288946942 54310 host=foo type=irq
put df.bytes.free 1288946942 8654364672 host=foo mount=/ fstype=ext4
put iostat.disk.read_requests 1288946942 15 host=foo dev=sda
put sys.numa.zoneallocs 1288946942 1.3E3 host=foo node=0 type=hit
"""
# Lines of collectd 5.12's write_tsdb: CRLF, and two spaces before HostTags.
COLLECTD = (
    b"put load.load.shortterm 1795193807 0.74365234375 fqdn=h-01.example  dc=probe rack=r1\r\n"
    b"put interface.eth0.if_octets.rx 1795193807 1946676870 fqdn=h-01.example  dc=probe rack=r1\r\n"
)


def read(data, writer=ALL, step=0):
    points = Points(writer)
    reader = LineReader(points)
    parts = [data[at : at + step] for at in range(0, len(data), step)] if step else [data]
    events = [event for part in parts for event in reader.feed(part)]
    return points.take(), events


def rows(batch):
    return [
        (batch.series[index], time, value)
        for index, time, value in zip(batch.index.tolist(), batch.time.tolist(), batch.value.tolist(), strict=True)
    ]


def test_lines_of_collectd_are_read():
    batch, events = read(COLLECTD)
    assert events == []
    labels = (("dc", "probe"), ("rack", "r1"))
    assert rows(batch) == [
        (Series("external.load.load.shortterm", node="h-01.example", labels=labels), 1795193807000, 0.74365234375),
        (Series("external.interface.eth0.if_octets.rx", node="h-01.example", labels=labels), 1795193807000, 1946676870),
    ]


def test_lines_of_tcollector_are_read():
    batch, events = read(TCOLLECTOR)
    assert events == []
    assert rows(batch)[2:] == [
        (
            Series("external.df.bytes.free", node="foo", labels=(("fstype", "ext4"), ("mount", "/"))),
            1288946942000,
            8654364672,
        ),
        (Series("external.iostat.disk.read_requests", node="foo", labels=(("dev", "sda"),)), 1288946942000, 15),
        (
            Series("external.sys.numa.zoneallocs", node="foo", labels=(("node", "0"), ("type", "hit"))),
            1288946942000,
            1300,
        ),
    ]


@given(st.integers(1, 40))
def test_it_does_not_matter_where_the_bytes_are_cut(step):
    whole, _ = read(COLLECTD + TCOLLECTOR)
    parts, events = read(COLLECTD + TCOLLECTOR, step=step)
    assert rows(parts) == rows(whole)
    assert events == []


def test_a_line_without_an_end_is_not_read():
    batch, events = read(b"put a.b 1288946927 1 host=foo\nput a.b 1288946928 12")
    assert len(batch) == 1
    assert events == []


def test_every_part_of_a_series_can_be_set():
    line = b"put app.loss 1288946927 1 project=lab cluster=west node=n1 device=gpu0 job=j1 replica=w-0 attempt=2 a=b\n"
    batch, events = read(line)
    assert events == []
    assert batch.series == [Series("app.loss", "lab", "west", "n1", "gpu0", "j1", "w-0", 2, (("a", "b"),))]


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        (b"put", "put: illegal argument: not enough arguments (need least 4, got 1)"),
        (b"put a 1 2", "put: illegal argument: not enough arguments (need least 4, got 4)"),
        (b"put metric.foo notatime 42 host=web01", "put: invalid value: Invalid timestamp: notatime"),
        (b"put metric.foo 1288946927 nan host=web01", "put: invalid value: Unable to parse value to a number"),
        (b"put metric.foo 1288946927 1,5 host=web01", "put: invalid value: Unable to parse value to a number"),
        (b"put metric.foo 0 1 host=web01", "put: invalid value: Invalid timestamp: 0"),
        (b"put metric.foo -5 1 host=web01", "put: invalid value: Invalid timestamp: -5"),
        (b"put metric.foo 1288946927 1 host", "put: illegal argument: invalid tag: host"),
        (b"put metric.foo 1288946927 1 host=", "put: illegal argument: invalid tag: host="),
        (b"put metric.foo 1288946927 1 host=a host=b", "put: illegal argument: duplicate tag: host"),
        (b"put a/b 1288946927 1 host=a", "put: illegal argument: metric 'a/b' is not a metric name"),
        (b"put gpu.utilization 1288946927 50 host=a",
         "put: invalid value: gpu.utilization 50.0 is outside of [0, 1.5]: is its unit right?"),
        (b"put a.b 1288946927 1 host=a job=../b",
         "put: illegal argument: job_id '../b' is not a job id: 1 to 128 printable characters without / \\ ' \" ` < >"),
        (b"put a.b 1288946927 1 host=a attempt=x", "put: illegal argument: attempt 'x' is not a number of restarts"),
        (b"put a.b 1288946927 1 host=\xff", "put: illegal argument: the line is not UTF-8"),
        (b"\xff", "unknown command: not UTF-8.  Try `help'."),
    ],
)  # fmt: skip
def test_a_wrong_line_is_answered(line, answer):
    batch, events = read(line + b"\n" + b"put good 1288946927 1 host=web01\n")
    assert [event.line for event in events] == [answer + "\n"]
    assert len(batch) == 1


def test_commands_come_in_their_order():
    _, events = read(b"version\r\n\r\nauth t0k\nexit now\n")
    assert events == [Command("version", ()), Command("auth", ("t0k",)), Command("exit", ("now",))]


@pytest.mark.parametrize("step", [0, 1000, 20_000])
def test_a_line_that_is_too_long_is_dropped_and_nothing_else(step):
    data = b"put a 1288946927 1 host=" + b"x" * 3 * MAX_LINE + b"\nput a 1288946927 1 host=b\n"
    batch, events = read(data, step=step)
    assert [type(event) for event in events] == [Wrong]
    assert events[0].reason == "length"
    assert len(batch) == 1


def test_a_key_of_a_project_writes_there():
    batch, events = read(b"put a 1288946927 1 host=b\nput a 1288946927 1 project=x\n", "lab")
    assert [one.project for one in batch.series] == ["lab"]
    assert [event.reason for event in events] == ["project"]
    batch, _ = read(b"put a 1288946927 1 host=b\nput a 1288946927 1 project=x\n")
    assert [one.project for one in batch.series] == ["default", "x"]


@pytest.mark.parametrize(
    ("sent", "milliseconds"),
    [
        (1346846400, 1346846400000),
        ("1346846400", 1346846400000),
        (1364410924250, 1364410924250),
        ("1364410924.250", 1364410924250),
        (1364410924.25, 1364410924250),
        ("1364410924.", 1364410924000),
        (1, 1000),
    ],
)
def test_times_are_in_seconds_or_milliseconds(sent, milliseconds):
    assert parse_time(sent) == milliseconds


@pytest.mark.parametrize("sent", [0, -1, "", None, True, "1e9", "12a", "1.2345", 10**13, 9_999_999_999, "٣", "1" * 99])
def test_a_wrong_time_is_refused(sent):
    with pytest.raises(PointRefusedError) as refused:
        parse_time(sent)
    assert refused.value.reason == "time"


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_number_and_its_text_are_the_same(value):
    assert parse_number(value) == value
    assert parse_number(repr(value)) == value


@pytest.mark.parametrize(
    "sent", ["", "NaN", "Infinity", "1e999", "0x10", "1_0", " 1", True, None, [], 10**400, "1" * 65]
)
def test_what_is_no_number_is_refused(sent):
    with pytest.raises(PointRefusedError) as refused:
        parse_number(sent)
    assert refused.value.reason == "value"


@given(st.text("abce.xtrnl", min_size=1, max_size=30) | st.sampled_from(sorted(CATALOG)) | st.just("app.loss"))
def test_a_metric_has_one_name_on_either_side(name):
    for one in (name, f"external.{name}", f"external.external.{name}"):
        assert make_opentsdb_name(parse_opentsdb_name(one)) == one
        if one.startswith(("external.", "app.")) or one in CATALOG:
            assert parse_opentsdb_name(make_opentsdb_name(one)) == one


def test_names_of_the_catalogue_are_themselves():
    assert parse_opentsdb_name("cpu.usage") == "cpu.usage"
    assert parse_opentsdb_name("app.loss") == "app.loss"
    assert parse_opentsdb_name("sys.cpu.user") == "external.sys.cpu.user"
    assert make_opentsdb_name("external.sys.cpu.user") == "sys.cpu.user"


def test_a_body_is_one_data_point_or_several():
    one = {"metric": "sys.cpu.nice", "timestamp": 1346846400, "value": 18, "tags": {"host": "web01", "dc": "lga"}}
    expected = DataPoint("sys.cpu.nice", 1346846400, 18, {"host": "web01", "dc": "lga"})
    assert decode(json.dumps(one).encode(), 9) == [expected]
    assert len(decode(json.dumps([one, one]).encode(), 9)) == 2
    assert decode(b" [] ", 9) == []


def test_numbers_in_tags_are_their_text_and_nothing_is_nothing():
    (one,) = decode(b'{"metric":"a","timestamp":1,"value":"2","tags":{"cpu":0,"up":true,"none":null,"f":1.5}}', 9)
    assert one.format_tags() == {"cpu": "0", "up": "true", "f": "1.5"}
    assert one.describe() == {"metric": "a", "timestamp": 1, "value": "2", "tags": one.format_tags()}


def test_a_body_with_nan_is_read_and_the_data_point_refused():
    (one,) = decode(b'[{"metric":"sys.cpu.nice","timestamp":1365465600,"value":NaN,"tags":{"host":"web01"}}]', 9)
    assert one.value == "NaN"
    with pytest.raises(PointRefusedError, match="Unable to parse value to a number"):
        Points(ALL).add("sys.cpu.nice", one.timestamp, one.value, one.format_tags())


@pytest.mark.parametrize(
    "body", [b"", b" ", b"{", b"[1]", b'"x"', b"\xff", b'{"metric":1}', b"[" * 100_000, b'[{"tags":[]}]']
)
def test_what_is_no_json_of_data_points_is_refused(body):
    with pytest.raises(InvalidRequestError) as refused:
        decode(body, 9)
    assert refused.value.field == "body"


@given(st.binary(max_size=300))
def test_no_bytes_break_the_reader(data):
    batch, events = read(data + b"\n")
    assert len(batch) + len(events) <= data.count(b"\n") + 1


def test_a_batch_lists_each_series_once():
    data = b"".join(b"put a %d 1 host=b\n" % (1288946927 + at) for at in range(5))
    points = Points(ALL)
    list(LineReader(points).feed(data))
    assert len(points) == 5
    batch = points.take()
    assert len(batch.series) == 1
    assert len(points.take()) == 0
