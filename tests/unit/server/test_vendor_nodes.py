"""Tests of the setting for a silent node: it applies to the states of vendors' APIs as to ours."""

import json

import pytest
from tests.support.fakes import NOW
from tests.support.frames import records
from tests.support.serving import serving

WORDS = {
    "/api/eflo-controller/2022-12-15/DescribeNode?NodeId=n1": ("Using", "Stopped"),
    "/api/PaiStudio/2022-01-12/ListNodes?QuotaId=rg": ("Ready", "NotReady"),
}


def state(server, target):
    headers = {"Authorization": f"Bearer {server.admin.token}"}
    body = json.loads(server.raw("GET", target, b"", headers).body)
    return body.get("OperatingState") or body["Nodes"][0]["NodeStatus"]


@pytest.mark.parametrize("seconds", [30, 3_600])
def test_a_silent_node_goes_down_after_the_seconds_of_the_setting(tmp_path, seconds):
    server = serving(tmp_path, node_seconds=seconds)
    server.ingest(records({"nodes": [{"name": "n1", "resource_group": "rg", "info": {"cores": 1}}]}))
    for target, (up, down) in WORDS.items():
        server.clock.time_ms = NOW + seconds * 1000 - 1
        assert state(server, target) == up
        server.clock.time_ms = NOW + seconds * 1000
        assert state(server, target) == down
    server.application.close()
