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
