"""Tests of diagnostic tasks of nodes: their evidence is in the stored kernel lines of these nodes, and no others."""

import pytest
from tests.support.frames import records
from tests.support.serving import serving

from jobmeter.diagnose import kernel
from jobmeter.errors import LimitExceededError
from jobmeter.model.log import LogLine
from jobmeter.server.tasks import Tasks
from jobmeter.wire.native.logs import make_logs_frame

NODES = ("n1", "n2", "other")
OK = {"name": "disks", "status": "ok", "text": "fine"}
SAID = {
    "n1": [
        "NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus",
        "Out of memory: Killed process 4711 (python) total-vm:1kB",
        "mlx5_core 0000:3b:00.0 ens1f0np0: Link down",
        "EXT4-fs error (device sda1): ext4_lookup:1855: inode #2: comm python: deleted inode referenced: 12",
    ],
    "n2": ["Memory cgroup out of memory: Killed process 9 (train) total-vm:1kB", "XFS (dm-0): Ending clean mount"],
    "other": ["NVRM: Xid (PCI:0000:af:00): 48, pid=2"],
}


@pytest.fixture
def server(tmp_path):
    made = serving(tmp_path / "data")
    facts = {"n1": {"devices": [{"device": "gpu0", "pci": "0000:3b:00"}]}}
    nodes = [{"name": name, "cluster": "c", "info": facts.get(name, {})} for name in NODES]
    made.ingest(records({"nodes": nodes}))
    yield made
    made.application.close()


def said(server, node, *texts, facility="kern", ago_ms=60_000):
    time_ns = (server.clock.time_ms - ago_ms) * 1_000_000
    lines = [
        LogLine(time_ns=time_ns + at, text=text, node=node, stream="kernel", facility=facility)
        for at, text in enumerate(texts)
    ]
    server.ingest(make_logs_frame(lines))


def diagnosed(server, *nodes, **task):
    answer = server.call("POST", "/tasks", {"nodes": list(nodes), **task})
    assert answer.status == 200, answer.body
    services = server.application.services
    for node in nodes:
        server.call(
            "POST",
            f"/nodes/{node}/checks",
            {"cluster": "c", "answers": [{"task": answer.json()["id"], "checks": [OK]}]},
        )
    Tasks(services.executor, services.registry, services.thresholds, server.clock).round()
    return server.call("GET", f"/tasks/{answer.json()['id']}").json()


def found(task):
    return {(one["rule"], one["subject"]["name"]) for one in task.get("findings", ())}


def test_rules_find_their_evidence_in_the_lines_of_the_nodes(server):
    for node, texts in SAID.items():
        said(server, node, *texts)
    task = diagnosed(server, "n1", "n2")
    assert (task["state"], task["verdict"], task.get("message", "")) == ("done", "fault", "")
    assert found(task) == {
        ("xid", "n1/gpu0"),
        ("host_oom_kill", "n1"),
        ("host_oom_kill", "n2"),
        ("link_flap", "n1/ens1f0np0"),
        ("fs_error", "n1:sda1"),
    }
    assert {one["role"] for one in task["findings"]} == {"root"}
    evidence = {part["text"] for one in task["findings"] for part in one["evidence"] if part["kind"] == "log"}
    assert evidence == {*SAID["n1"], SAID["n2"][0]}


def test_lines_out_of_the_range_and_of_programs_are_none(server):
    said(server, "n1", *SAID["n1"], ago_ms=3 * 3_600_000)
    said(server, "n1", *SAID["n1"], facility="user")
    task = diagnosed(server, "n1")
    assert (found(task), task["verdict"]) == (set(), "healthy")


def test_a_flood_of_one_kind_hides_no_other_and_stays_bounded(server, monkeypatch):
    monkeypatch.setattr(kernel, "MOST_LINES", 10)
    said(server, "n1", *(f"mlx5_core 0000:3b:00.0 ens1f0np0: Link down #{at}" for at in range(500)))
    said(server, "n1", SAID["n1"][0], ago_ms=1_000)
    task = diagnosed(server, "n1")
    assert found(task) == {("link_flap", "n1/ens1f0np0"), ("xid", "n1/gpu0")}
    (flap,) = (one for one in task["findings"] if one["rule"] == "link_flap")
    assert flap["evidence"][0]["value"] == 10


def test_too_many_lines_to_search_are_reported_and_say_nothing_of_health(server, monkeypatch):
    def too_much(*_, **__):
        raise LimitExceededError("the search would read more than 5 lines", "range")

    monkeypatch.setattr(kernel, "_lines_of", too_much)
    task = diagnosed(server, "n1", "n2")
    assert (task["state"], task["verdict"]) == ("done", "unknown")
    assert "the kernel's log of n1 was not searched: the search would read more than 5 lines" in task["message"]
    assert "n2" in task["message"]
