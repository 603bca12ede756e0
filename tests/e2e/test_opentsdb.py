"""OpenTSDB's clients against a real server: collectd's write_tsdb (from Debian), raw sockets, and reads over HTTP."""

import json
import socket
import subprocess
import sys
import time

import pytest

from tests.programs import find
from tests.support.needs import needing
from tests.support.processes import running
from tests.support.waiting import wait_until

COLLECTD = find("collectd")
pytestmark = pytest.mark.slow

CONFIGURATION = """\
Hostname "h-01.example"
FQDNLookup false
BaseDir "{folder}"
PIDFile "{folder}/collectd.pid"
PluginDir "/usr/lib/collectd"
TypesDB "/usr/share/collectd/types.db"
Interval 1
LoadPlugin load
LoadPlugin memory
LoadPlugin write_tsdb
<Plugin write_tsdb>
 <Node "jobmeter">
  Host "127.0.0.1"
  Port "{port}"
  HostTags "dc=probe rack=r1"
  StoreRates true
  AlwaysAppendDS true
 </Node>
</Plugin>
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("opentsdb")
    data = folder / "data"
    verb = ["key", "create", "--name", "collectd", "--role", "writer", "--project", "lab", "--json"]
    command = [sys.executable, "-m", "jobmeter", *verb, "--data", str(data)]
    made = subprocess.run(command, check=True, capture_output=True)
    token = json.loads(made.stdout)["token"]
    with running(data, "--opentsdb-port", "0", environment={"JOBMETER_OPENTSDB_KEY": token}) as started:
        started.token = token
        yield started, started.note["opentsdb_port"]


def query(server, metric, **more):
    asked = {"start": "10m-ago", "queries": [{"aggregator": "none", "metric": metric, **more}], "msResolution": True}
    reply = server.call("POST", "/api/query", json.dumps(asked).encode(), {"Content-Type": "application/json"})
    return reply.json() if reply.status == 200 else []


@needing("collectd")
def test_collectd_writes_and_its_readings_are_answered(server, tmp_path):
    running, port = server
    (tmp_path / "collectd.conf").write_text(CONFIGURATION.format(folder=tmp_path, port=port))
    log = (tmp_path / "log").open("wb")
    assert COLLECTD is not None
    collectd = subprocess.Popen(
        [COLLECTD, "-f", "-C", str(tmp_path / "collectd.conf")], stdout=log, stderr=log, start_new_session=True
    )
    try:
        found = wait_until(lambda: [one for one in query(running, "load.load.shortterm") if len(one["dps"]) >= 3])
    finally:
        collectd.terminate()
        collectd.wait(30)
        log.close()
    assert [one["tags"] for one in found] == [{"dc": "probe", "host": "h-01.example", "rack": "r1"}]
    assert all(0 <= value < 1000 for value in found[0]["dps"].values())
    names = running.call("GET", "/api/suggest", type="metrics", q="memory.", max=50).json()
    assert "memory.memory.used.value" in names
    used = query(running, "memory.memory.used.value", filters=[{"type": "wildcard", "tagk": "fqdn", "filter": "h-*"}])
    assert used[0]["tags"]["fqdn"] == "h-01.example"
    assert min(used[0]["dps"].values()) > 2**20


def test_lines_and_bodies_are_stored_and_read_back_alike(server):
    """Send equal readings by lines and by bodies, and compare the stored values."""
    running, port = server
    now = int(time.time())
    points = [(now - 300 + at * 10, at * 0.25) for at in range(30)]
    with socket.create_connection(("127.0.0.1", port), 30) as line:
        line.sendall("".join(f"put both {at} {value} way=line\n" for at, value in points).encode())
        line.sendall(b"version\n")
        assert line.recv(100).startswith(b"Jobmeter")
    sent = [{"metric": "both", "timestamp": at, "value": value, "tags": {"way": "body"}} for at, value in points]
    reply = running.call("POST", "/api/put?summary", json.dumps(sent).encode())
    assert (reply.status, reply.json()) == (200, {"failed": 0, "success": 30})
    found = query(running, "both")
    assert [one["tags"] for one in found] == [{"way": "body"}, {"way": "line"}]
    assert [one["dps"] for one in found] == [{str(at * 1000): value for at, value in points}] * 2
