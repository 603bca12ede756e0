import json

import pytest


def listed(server, run, devices, *options):
    node = {"name": "n1", "project": "default", "cluster": "", "resource_group": "", "info": {"devices": devices}}
    server.on("/nodes", {"nodes": [{**node, "first_seen": None, "last_seen": None}]})
    result = run("nodes", *options)
    assert result.exit_code == 0, result.output
    return result.stdout


def gpus(**states):
    return [
        {"device": f"gpu{at}", "name": "H200"} | ({"state": states[f"gpu{at}"]} if f"gpu{at}" in states else {})
        for at in range(8)
    ]


@pytest.mark.parametrize(
    ("devices", "text"),
    [
        (gpus(), "8"),
        (gpus(gpu3="lost"), "7 of 8: gpu3 lost"),
        (gpus(**{f"gpu{at}": "hangs" for at in range(5)}), "3 of 8: gpu0 hangs, gpu1 hangs, gpu2 hangs, 2 more"),
        (["gpu0"], "1"),
        ({"gpu0": 1}, "1"),
        (4, "4"),
    ],
)
def test_devices_that_are_not_measured_are_named(server, run, devices, text):
    assert text in [" ".join(part.split()) for part in listed(server, run, devices).splitlines()[-1].split("  ")]


def test_json_has_the_states(server, run):
    (node,) = json.loads(listed(server, run, gpus(gpu3="lost"), "--json"))
    assert [one["device"] for one in node["info"]["devices"] if "state" in one] == ["gpu3"]


def test_faults_say_which_since_when_and_whom_they_hit(server, run):
    fault = {"device": "gpu2", "text": "XID 79: the GPU has fallen off the bus", "start": 1_790_000_000_000}
    hit = {"id": "train", "project": "default", "name": "llama"}
    nodes = [{"name": name, "project": "default", "cluster": "c"} for name in ("n1", "n2")]
    faults = [{"node": "n2", "cluster": "c", "faults": [{**fault, "jobs": [hit]}]}]
    server.on("/nodes", {"nodes": nodes, "faults": faults})
    shown = " ".join(run("nodes").stdout.split())
    assert "gpu2: XID 79: the GPU has fallen off the bus, since 2026-09-21 14:13:20 UTC, hit train" in shown
    assert shown.endswith("1 of 2 nodes with faults")
    first, second = json.loads(run("nodes", "--json").stdout)
    assert first["faults"] == []
    assert [one["jobs"][0]["id"] for one in second["faults"]] == ["train"]
    server.on("/nodes", {"nodes": nodes})
    assert "faults" not in run("nodes").stdout


def test_a_group_that_no_node_has_is_refused_with_the_groups(server, run):
    nodes = [{"name": name, "project": "default", "cluster": "", "resource_group": f"group-{name}"} for name in "ab"]
    server.on("/nodes", {"nodes": nodes})
    assert [one["name"] for one in json.loads(run("nodes", "--group", "group-b", "--json").stdout)] == ["b"]
    shown = run("nodes", "--group", "xyz")
    assert str(shown.exception) == "no node has the resource group 'xyz'; choose from group-a, group-b"
