"""Tests of DSNs of the engine."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobmeter.errors import ConfigurationError
from jobmeter.model.time import SystemClock
from jobmeter.store.clickhouse import parse_dsn
from jobmeter.store.clickhouse.target import format_place
from jobmeter.store.registry import open_store


def test_an_embedded_path_is_taken_literally():
    assert parse_dsn("chdb:///var/lib/a b%20c").path == Path("/var/lib/a b%20c")
    assert parse_dsn("chdb://data/telemetry").path == Path("data/telemetry").resolve()
    assert parse_dsn("chdb:///d?config-file=/etc/c.xml&cluster=main").cluster == "main"


def test_a_server_is_named_with_everything():
    target = parse_dsn("clickhousedb://u%40x:p%2Fw@host:9123/telemetry?cluster=main&secure=true")
    assert (target.user, target.password, target.places) == ("u@x", "p/w", (("host", 9123),))
    assert (target.database, target.cluster, target.options) == ("telemetry", "main", {"secure": "true"})
    assert "p/w" not in repr(target)
    assert "p/w" not in target.name


def test_a_server_has_defaults():
    target = parse_dsn("clickhousedb://host")
    assert (target.places, target.database, target.cluster) == ((("host", 8123),), "jobmeter", "")
    assert parse_dsn("clickhousedb://host?secure=1").places == (("host", 8443),)


def test_hosts_are_separated_by_commas():
    target = parse_dsn("clickhousedb://u:a,b@one,[::1]:9001,three:9002/db?cluster=main")
    assert target.places == (("one", 8123), ("::1", 9001), ("three", 9002))
    assert target.password == "a,b"
    assert target.name == "clickhousedb://one:8123,[::1]:9001,three:9002/db"
    assert target.with_server(("three", 9002)).name == "clickhousedb://three:9002/db"


def test_the_hosts_of_a_shard_follow_each_other():
    target = parse_dsn("clickhousedb://a,b,c,d/db?shards=2")
    assert target.name == "clickhousedb://a:8123,b:8123,c:8123,d:8123/db?shards=2"
    assert [one.name for one in target.split()] == [
        "clickhousedb://a:8123,b:8123/db",
        "clickhousedb://c:8123,d:8123/db",
    ]
    assert [(one.shard, one.siblings, one.shards) for one in target.split()] == [(1, 2, 1), (2, 2, 1)]
    whole = parse_dsn("clickhousedb://a,b/db")
    assert whole.split() == [whole]


@given(
    st.lists(
        st.tuples(st.from_regex(r"[a-z][a-z0-9.-]{0,20}", fullmatch=True), st.integers(1, 65_535)),
        min_size=1,
        max_size=16,
        unique=True,
    )
)
def test_each_host_is_read_as_it_was_written(places):
    hosts = ",".join(map(format_place, places))
    assert parse_dsn(f"clickhousedb://{hosts}/db?cluster=c").places == tuple(places)


@pytest.mark.parametrize(
    ("dsn", "says"),
    [
        ("clickhousedb://a,b,c/db?shards=2", "divides its 3 hosts"),
        ("clickhousedb://a,b/db?shards=0", "shards"),
        ("clickhousedb://a,b/db?shards=two", "shards"),
        ("clickhousedb://a,b/db?shards=2&cluster=main", "cluster and shards"),
        ("sqlite:///x", "sqlite"),
        ("chdb://", "path"),
        ("clickhousedb://", "host"),
        ("clickhousedb://host/a-b", "a-b"),
        ("clickhousedb://host/a;DROP", "a;DROP"),
        ("clickhousedb://host/db?cluster=x'y", "x'y"),
        ("clickhousedb://host/db?nonsense=1", "nonsense"),
        ("clickhousedb://host:99999/db", "port"),
        ("clickhousedb://one,,three/db?cluster=main", "host"),
        ("clickhousedb://one,one:8123/db?cluster=main", "one:8123 twice"),
        ("clickhousedb://one,two:x/db?cluster=main", "port"),
        ("clickhousedb://one,[::1/db?cluster=main", "IPv6"),
        (f"clickhousedb://{','.join(map(str, range(17)))}/db?cluster=main", "17 hosts, at most 16"),
        ("chdb:///x?mode=ro", "mode"),
        ("nothing", "nothing"),
    ],
)
def test_what_is_wrong_is_said(dsn, says):
    with pytest.raises(ConfigurationError, match=says):
        open_store(dsn, SystemClock())
