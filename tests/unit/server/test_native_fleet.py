import pytest
from tests.support.fakes import NOW
from tests.support.frames import samples
from tests.support.serving import serving

from jobmeter.model.time import MINUTE

PRICES = '[devices]\nH200 = 2.5\n"NVIDIA H200 NVL" = 3\n'


@pytest.fixture
def server(tmp_path):
    prices = tmp_path / "prices.toml"
    prices.write_text(PRICES)
    made = serving(tmp_path / "data", prices=str(prices))
    yield made
    made.application.close()


def node(name, group="rg-1", **more):
    devices = [{"device": f"gpu{at}", "name": "NVIDIA H200"} for at in range(2)]
    return {"name": name, "resource_group": group, "info": {"cores": 8, "devices": devices}, **more}


def job(job_id, node_name, user="lin", **more):
    replica = {"name": "worker-0", "node": node_name, "devices": ["gpu0", "gpu1"]}
    start = NOW - 60 * MINUTE
    return {"job_id": job_id, "state": "Running", "start": start, "user": user, "replicas": [replica], **more}


def busy(node_name, device, value, minutes=20, **more):
    times = range(NOW - minutes * MINUTE, NOW, 15_000)
    return {"metric": "gpu.utilization", "node": node_name, "device": device, **more}, [(at, value) for at in times]


def fill(server):
    nodes = [node("n1"), node("n2", "rg-2")]
    body = {"nodes": nodes, "jobs": [job("train", "n1", name="llama", resource_group="rg-1")]}
    assert server.call("POST", "/jobs", body).status == 200
    frames = samples([busy("n1", "gpu0", 0.9), busy("n1", "gpu1", 0.0), busy("n2", "gpu0", 0.0)])
    assert server.ingest(frames).status == 200


def devices(body):
    return {(one["name"], own["device"]): own for one in body["nodes"] for own in one["devices"]}


def test_one_answer_has_every_node_with_its_devices_and_who_has_them(server):
    fill(server)
    body = server.call("GET", "/fleet").json()
    assert [(one["name"], one["resource_group"], one["state"]) for one in body["nodes"]] == [
        ("n1", "rg-1", "up"),
        ("n2", "rg-2", "up"),
    ]
    found = devices(body)
    assert found["n1", "gpu0"]["use"] == pytest.approx(0.9)
    assert body["jobs"][found["n1", "gpu0"]["job"]]["name"] == "llama"
    assert "idle" not in found["n1", "gpu0"]
    assert found["n1", "gpu1"] == {"device": "gpu1", "type": 0, "use": 0.0, "job": 0, "idle": True}
    # The device has no job: it is free, whatever its use. A device that was not measured has no use at all.
    assert found["n2", "gpu0"] == {"device": "gpu0", "type": 0, "use": 0.0}
    assert found["n2", "gpu1"] == {"device": "gpu1", "type": 0}


def test_a_device_that_cannot_be_measured_says_why(server):
    fill(server)
    lost = node("n2", "rg-2")
    lost["info"]["devices"][1]["state"] = "lost"
    lost["info"]["devices"].append({"device": "gpu2", "name": "", "uuid": "", "state": "no permission"})
    assert server.call("POST", "/jobs", {"nodes": [lost]}).status == 200
    found = devices(server.call("GET", "/fleet").json())
    assert found["n2", "gpu1"] == {"device": "gpu1", "type": 0, "state": "lost"}
    assert "state" not in found["n2", "gpu0"]
    # Its type cannot be read: it gets the type of the others.
    assert found["n2", "gpu2"] == {"device": "gpu2", "type": 0, "state": "no permission"}


def test_a_device_without_utilization_is_as_busy_as_its_multiprocessors(server):
    """A MIG instance has no utilization. A device that has its utilization keeps that."""
    fill(server)
    assert server.call("POST", "/jobs", {"nodes": [node("n3")], "jobs": [job("split", "n3")]}).status == 200
    loads = [("n3", "gpu0", 0.4), ("n3", "gpu1", 0.0), ("n1", "gpu1", 0.7)]
    assert server.ingest(samples([busy(*load, metric="gpu.sm.active") for load in loads])).status == 200
    found = devices(server.call("GET", "/fleet").json())
    assert (found["n3", "gpu0"]["use"], "idle" in found["n3", "gpu0"]) == (pytest.approx(0.4), False)
    assert (found["n3", "gpu1"]["use"], found["n3", "gpu1"]["idle"]) == (0.0, True)
    assert found["n1", "gpu1"]["use"] == 0.0


def test_a_gpu_with_partitions_counts_as_its_partitions_alone(server):
    """No job can have the whole GPU, which would otherwise count as free."""
    fill(server)
    split = node("n2", "rg-2")
    split["info"]["devices"][0]["uuid"] = "GPU-0"
    split["info"]["devices"] += [{"device": f"gpu0:{at}", "name": "MIG 1g", "parent": "GPU-0"} for at in (3, 4)]
    assert server.call("POST", "/jobs", {"nodes": [split]}).status == 200
    found = devices(server.call("GET", "/fleet").json())
    assert [device for name, device in found if name == "n2"] == ["gpu0:3", "gpu0:4", "gpu1"]


@pytest.mark.parametrize(
    "listed", [["gpu0"], [{"device": "gpu0", "state": ["odd"]}], [{"parent": 1}], [{}], {"gpu0": "lost"}, "gpu0"]
)
def test_whatever_a_record_says_of_devices_is_no_error(server, listed):
    record = {"name": "n1", "info": {"devices": listed}}
    assert server.call("POST", "/jobs", {"nodes": [record]}).status == 200
    assert server.call("GET", "/fleet").status == 200


def test_money_is_reported_where_a_price_is_stated_and_only_there(server):
    fill(server)
    body = server.call("GET", "/fleet").json()
    assert body["types"] == [{"name": "NVIDIA H200", "price_hour": 2.5}]
    assert body["currency"] == "CNY"


def test_a_key_of_another_project_sees_none_of_it_and_a_shared_token_neither(server):
    fill(server)
    body = server.call("GET", "/fleet", key=server.key("reader", "p2")).json()
    assert (body["nodes"], body["jobs"]) == ([], [])
    job = server.call("GET", "/jobs").json()["jobs"][0]["id"]
    token = server.call("POST", f"/jobs/{job}/share").json()["token"]
    assert server.raw("GET", f"/api/jobmeter/v1/fleet?Token={token}").status == 401
    own = server.call("GET", "/fleet?project=default").json()
    assert len(own["nodes"]) == 2


def test_a_device_that_a_job_has_for_a_short_time_is_not_idle_yet(server):
    fill(server)
    late = {"name": "worker-0", "node": "n2", "devices": ["gpu0"], "start": NOW - MINUTE}
    assert server.call("POST", "/jobs", {"job_id": "new", "start": NOW - MINUTE, "replicas": [late]}).status == 200
    own = devices(server.call("GET", "/fleet").json())["n2", "gpu0"]
    assert "job" in own
    assert "idle" not in own


def test_a_node_that_is_silent_is_down_and_one_that_never_described_itself_is_unknown(server):
    fill(server)
    assert server.ingest(samples([busy("n3", "gpu0", 0.5)])).status == 200
    server.clock.time_ms += 20 * MINUTE
    states = {one["name"]: one["state"] for one in server.call("GET", "/fleet").json()["nodes"]}
    assert states == {"n1": "down", "n2": "down", "n3": "unknown"}
    assert all("use" not in own for own in devices(server.call("GET", "/fleet").json()).values())


def test_the_users_of_a_group_are_reported_in_our_units(server):
    fill(server)
    body = server.call("GET", "/users?resource_group=rg-1").json()
    (user,) = body["users"]
    assert (user["user"], user["requested"]["devices"], user["device_jobs"]) == ("lin", 2, ["train"])
    assert user["device"] == pytest.approx(0.45)
    assert body["capacity"]["devices"] == 2
    assert server.call("GET", "/users?resource_group=rg-9").status == 404
    assert server.call("GET", "/users?last=2m").status == 400


def test_the_jobs_of_a_user_are_those_that_ran_in_the_time_each_once(server):
    replica = {"name": "worker-0", "node": "n1"}
    tried = {"start": NOW - 50 * MINUTE, "end": NOW - 40 * MINUTE, "state": "Failed"}
    again = {"attempt": 1, "start": NOW - 40 * MINUTE, "node": "n2", "state": "Running"}
    own = {"user": "lin", "resource_group": "rg-1", "start": NOW - 60 * MINUTE}
    ended = {"state": "Succeeded", **own}
    jobs = [
        {"job_id": "twice", "state": "Running", **own, "replicas": [{**replica, **tried}, {**replica, **again}]},
        {"job_id": "lately", **ended, "end": NOW - 5 * MINUTE},
        {"job_id": "before", **ended, "end": NOW - 30 * MINUTE},
        {"job_id": "waits", "user": "lin", "resource_group": "rg-1", "state": "Queued"},
        {"job_id": "elsewhere", **own, "state": "Running", "resource_group": "rg-2"},
        {"job_id": "twice", "project": "p2", "state": "Running", **own},
    ]
    assert server.call("POST", "/jobs", {"nodes": [node("n1"), node("n2")], "jobs": jobs}).status == 200

    def count(last, **more):
        (user,) = server.call("GET", f"/users?resource_group=rg-1&last={last}", **more).json()["users"]
        return user["jobs"]

    assert (count("15m"), count("1h")) == (3, 4)
    assert count("15m", key=server.key("reader", "p2")) == 1


def test_retention_of_every_project_is_reported_at_one_look(server):
    fill(server)
    assert (
        server.call("PUT", "/projects/default/retention", {"raw_days": 3, "minute_days": 90, "hour_days": 730}).status
        == 200
    )
    body = server.call("GET", "/retention").json()
    assert body["raw_days"] == 15
    assert body["projects"] == [{"project": "default", "raw_days": 3, "minute_days": 90, "hour_days": 730, "own": True}]
    own = server.key("admin", "p1")
    assert server.call("GET", "/retention", key=own).status == 403
    assert [one["project"] for one in server.call("GET", "/retention?project=p1", key=own).json()["projects"]] == ["p1"]


def test_a_key_is_made_with_policies_by_name(server):
    assert "AliyunPAIReadOnlyAccess" in server.call("GET", "/policies").json()["policies"]
    wanted = {"name": "pai", "role": "admin", "policies": ["AliyunPAIReadOnlyAccess"]}
    made = server.call("POST", "/keys", wanted).json()
    listed = {one["id"]: one["policies"] for one in server.call("GET", "/keys").json()["keys"]}
    assert listed[made["id"]] == ["AliyunPAIReadOnlyAccess"]
    refused = server.call("POST", "/keys", {**wanted, "policies": ["none-such"]})
    assert refused.status == 400
    assert refused.json()["error"]["field"] == "policies[0]"


def machines(server, key=None):
    return {(one["cluster"], one["name"]): one for one in server.call("GET", "/nodes", key=key).json()["nodes"]}


def test_a_node_of_several_projects_is_listed_once(server):
    """Its agent has a key of one project; samples of jobs on it were sent with keys of other projects."""
    for project in ("a", "b", "c"):
        key = server.key("writer", project)
        if project == "b":
            assert (
                server.call("POST", "/jobs", {"nodes": [node("n1")], "jobs": [job("train", "n1")]}, key).status == 200
            )
        at = NOW - {"a": 3, "b": 2, "c": 1}[project] * MINUTE
        place = {"metric": "node.load1", "node": "n1", "cluster": ""}
        assert server.ingest(samples([(place, [(at, 1.0)])]), key).status == 200
    assert len(server.call("GET", "/nodes").json()["nodes"]) == 1
    found = machines(server)["", "n1"]
    assert (found["project"], found["resource_group"], found["info"]["cores"]) == ("b", "rg-1", 8)
    assert (found["first_seen"], found["last_seen"]) == (NOW - 3 * MINUTE, max(found["last_seen"], NOW - MINUTE))
    own = machines(server, server.key("reader", "a"))["", "n1"]
    assert (own["project"], own["info"], own["last_seen"]) == ("a", {}, NOW - 3 * MINUTE)
    (shown,) = server.call("GET", "/fleet").json()["nodes"]
    assert [one["device"] for one in shown["devices"]] == ["gpu0", "gpu1"]


def test_nodes_of_one_name_in_two_clusters_are_two(server):
    for cluster in ("c1", "c2"):
        assert server.call("POST", "/jobs", {"nodes": [node("n1", cluster=cluster)]}).status == 200
    assert sorted(machines(server)) == [("c1", "n1"), ("c2", "n1")]


XID = "NVRM: Xid (PCI:0000:9b:00): 79, pid=1234, GPU has fallen off the bus."


def happened(server, reason, message, at=NOW - 10 * MINUTE, level="error", node_name="n1", **more):
    event = {"time": at, "node": node_name, "source": "node", "reason": reason, "level": level, "message": message}
    assert server.call("POST", "/jobs", {"events": [{**event, **more}]}).status == 200


def faults(server, name="n1", **call):
    body = server.call("GET", "/fleet", **call).json()
    own = next(one.get("faults", []) for one in body["nodes"] if one["name"] == name)
    return [(one["device"], one["reason"], one["text"], [hit["id"] for hit in one["jobs"]]) for one in own]


def with_address(name="n1", address="0000:9b:00", **more):
    described = node(name)
    described["info"]["devices"][1]["pci"] = address
    described["info"].update(more)
    return described


def test_a_node_says_which_fault_it_has_since_when_and_which_job_it_hit(server):
    fill(server)
    assert faults(server) == []
    happened(server, "Xid", XID, subject="device 0000:9b:00")
    happened(server, "Xid", XID, at=NOW - 5 * MINUTE, subject="device 0000:9b:00")
    assert faults(server) == [("0000:9b:00", "Xid", "XID 79: the GPU has fallen off the bus", ["train"])]
    assert server.call("POST", "/jobs", {"nodes": [with_address()]}).status == 200
    assert faults(server) == [("gpu1", "Xid", "XID 79: the GPU has fallen off the bus", ["train"])]
    [one] = server.call("GET", "/fleet").json()["nodes"][0]["faults"]
    assert (one["start"], one["last"], one["count"]) == (NOW - 10 * MINUTE, NOW - 5 * MINUTE, 2)
    assert faults(server, "n2") == []
    listed = server.call("GET", "/nodes?faults=true").json()
    assert [(own["node"], own["faults"]) for own in listed["faults"]] == [("n1", [one])]
    assert "faults" not in server.call("GET", "/nodes").json()


@pytest.mark.parametrize(
    ("reason", "level", "text", "is_fault"),
    [
        ("EccUncorrected", "error", "2 memory errors were not corrected. Reset the device.", True),
        ("DeviceThrottled", "warning", "Its temperature throttled it 0.40 s in each second.", True),
        ("GpuLost", "error", "gpu1, NVIDIA H200, cannot be read (GPU is lost).", True),
        ("GpuNotPermitted", "warning", "gpu1 may not be opened by the agent.", False),
        ("Xid", "warning", XID.replace("79", "31"), False),
        ("CpuThrottled", "warning", "Its CPU quota throttled it.", False),
    ],
)
def test_hardware_and_heat_are_faults_and_what_an_application_did_is_none(server, reason, level, text, is_fault):
    fill(server)
    happened(server, reason, text, level=level, subject="device gpu1")
    assert faults(server) == ([("gpu1", reason, text, ["train"])] if is_fault else [])


def test_a_link_that_went_down_hits_the_jobs_of_the_node(server):
    fill(server)
    line = "mlx5_core 0000:3b:00.0 ib0: Link is Down"
    happened(server, "LinkDown", line)
    assert faults(server) == [("", "LinkDown", line, ["train"])]


def test_a_fault_ends_with_a_day_a_start_of_the_node_or_when_the_device_is_back(server):
    fill(server)
    happened(server, "GpuLost", "gpu1 is lost", subject="device gpu1")
    happened(server, "DeviceThrottled", "Its temperature throttled it", level="warning", subject="device gpu0")
    happened(server, "EccUncorrected", "1 memory error", at=NOW - 26 * 60 * MINUTE, subject="device gpu0")
    assert {one[1] for one in faults(server)} == {"GpuLost", "DeviceThrottled"}
    happened(server, "GpuBack", "gpu1 is measured", at=NOW - MINUTE, level="info", subject="device gpu1")
    assert {one[1] for one in faults(server)} == {"DeviceThrottled"}
    happened(server, "DeviceThrottlingEnded", "over", at=NOW - MINUTE, level="info", subject="device gpu0")
    assert faults(server) == []
    happened(server, "Xid", XID)
    assert len(faults(server)) == 1
    assert server.call("POST", "/jobs", {"nodes": [with_address(booted=NOW - MINUTE)]}).status == 200
    assert faults(server) == []


def test_a_job_that_ended_before_was_not_hit(server):
    fill(server)
    old = job("old", "n1") | {"state": "Succeeded", "end": NOW - 30 * MINUTE}
    assert server.call("POST", "/jobs", {"jobs": [old]}).status == 200
    happened(server, "LinkDown", "ib0: link is down")
    assert [one[3] for one in faults(server)] == [["train"]]


def test_a_key_of_another_project_sees_no_fault(server):
    fill(server)
    happened(server, "LinkDown", "ib0: link is down")
    body = server.call("GET", "/fleet", key=server.key("reader", "p2")).json()
    assert body["nodes"] == []


def test_nodes_are_counted_by_their_state_and_faults_as_far_as_the_key_may_see_them(server):
    fill(server)
    fault = {"time": NOW - MINUTE, "node": "n1", "source": "node", "reason": "GpuLost", "level": "error"}
    body = {"events": [{**fault, "message": "gpu1 is lost", "subject": "device gpu1"}]}
    assert server.call("POST", "/jobs", body).status == 200
    assert server.call("GET", "/fleet/counts").json() == {"up": 2, "down": 0, "unknown": 0, "faulty": 1}
    server.clock.time_ms += 20 * MINUTE
    assert server.call("GET", "/fleet/counts").json() == {"up": 0, "down": 2, "unknown": 0, "faulty": 1}
    nothing = {"up": 0, "down": 0, "unknown": 0, "faulty": 0}
    assert server.call("GET", "/fleet/counts", key=server.key("reader", "other")).json() == nothing
