"""Tests of the replicated schema, created for real with Debian's ZooKeeper where it is installed.

The embedded engine registers replicated tables but cannot replicate or change them, nor run statements for a whole
cluster.
"""

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.needs import needs
from tests.support.waiting import wait_until

JARS = Path("/usr/share/java")
CHILD = """
import json, os, sys
from jobmeter.store.clickhouse import parse_dsn
from jobmeter.store.clickhouse.migrations import MIGRATIONS
from jobmeter.store.clickhouse.pool import connect

target = parse_dsn(sys.argv[1])
client = connect(target, None)
client.command("CREATE DATABASE jobmeter")
client.database = "jobmeter"
for _, _, statements in MIGRATIONS:
    for statement in statements(target):
        if not statement.startswith("ALTER"):
            client.command(statement.replace(" ON CLUSTER 'main'", ""))
rows = client.query("SELECT table, zookeeper_path, replica_name FROM system.replicas ORDER BY table").result_rows
print(json.dumps(rows), flush=True)
os._exit(0)
"""
CONFIG = """<clickhouse>
  <tcp_port>9000</tcp_port>
  <macros><shard>01</shard><replica>r1</replica></macros>
  <remote_servers><main><shard><internal_replication>true</internal_replication>
    <replica><host>127.0.0.1</host><port>9000</port></replica>
  </shard></main></remote_servers>
  <zookeeper><node><host>127.0.0.1</host><port>PORT</port></node></zookeeper>
</clickhouse>"""


def _listens(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def zookeeper(tmp_path):
    """Yield the port of a ZooKeeper."""
    needs("java")
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    (tmp_path / "zoo.cfg").write_text(
        f"tickTime=2000\ndataDir={tmp_path}/zookeeper\nclientPort={port}\nclientPortAddress=127.0.0.1\n"
        "admin.enableServer=false\n"
    )
    with subprocess.Popen(
        ["java", "-cp", f"{JARS}/*", "org.apache.zookeeper.server.quorum.QuorumPeerMain", str(tmp_path / "zoo.cfg")],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as server:
        wait_until(lambda: _listens(port))
        yield port
        server.terminate()


@pytest.mark.slow
def test_the_replicated_tables_register_where_they_should(tmp_path, zookeeper):
    config = tmp_path / "config.xml"
    config.write_text(CONFIG.replace("PORT", str(zookeeper)))
    dsn = f"chdb://{tmp_path / 'store'}?config-file={config}&cluster=main"
    done = subprocess.run([sys.executable, "-c", CHILD, dsn], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    root = "/clickhouse/tables"
    sharded = [f"{name}_local" for name in ("hours", "logs", "minutes", "outbox", "samples", "series", "spans")]
    assert json.loads(done.stdout) == sorted(
        [[name, f"{root}/01/jobmeter/{name.removesuffix('_local')}", "r1"] for name in sharded]
        + [[name, f"{root}/jobmeter/{name}", "01-r1"] for name in ("marks", "progress")]
    )
