"""DSNs of the engine."""

from pathlib import Path

import pytest

from jobmeter.errors import ConfigurationError
from jobmeter.model.time import SystemClock
from jobmeter.store.clickhouse import parse_dsn
from jobmeter.store.registry import open_store


def test_an_embedded_path_is_taken_literally():
    assert parse_dsn("chdb:///var/lib/a b%20c").path == Path("/var/lib/a b%20c")
    assert parse_dsn("chdb://data/telemetry").path == Path("data/telemetry").resolve()
    assert parse_dsn("chdb:///d?config-file=/etc/c.xml&cluster=main").cluster == "main"


def test_a_server_is_named_with_everything():
    target = parse_dsn("clickhousedb://u%40x:p%2Fw@host:9123/telemetry?cluster=main&secure=true")
    assert (target.user, target.password, target.host, target.port) == ("u@x", "p/w", "host", 9123)
    assert (target.database, target.cluster, target.options) == ("telemetry", "main", {"secure": "true"})
    assert "p/w" not in repr(target)
    assert "p/w" not in target.name


def test_a_server_has_defaults():
    target = parse_dsn("clickhousedb://host")
    assert (target.port, target.database, target.cluster) == (8123, "jobmeter", "")
    assert parse_dsn("clickhousedb://host?secure=1").port == 8443


@pytest.mark.parametrize(
    ("dsn", "says"),
    [
        ("sqlite:///x", "sqlite"),
        ("chdb://", "path"),
        ("clickhousedb://", "host"),
        ("clickhousedb://host/a-b", "a-b"),
        ("clickhousedb://host/a;DROP", "a;DROP"),
        ("clickhousedb://host/db?cluster=x'y", "x'y"),
        ("clickhousedb://host/db?nonsense=1", "nonsense"),
        ("clickhousedb://host:99999/db", "port"),
        ("chdb:///x?mode=ro", "mode"),
        ("nothing", "nothing"),
    ],
)
def test_what_is_wrong_is_said(dsn, says):
    with pytest.raises(ConfigurationError, match=says):
        open_store(dsn, SystemClock())
