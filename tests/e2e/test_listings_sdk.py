"""Listings that scripts read first, with the vendor's own SDKs: groups, quotas, nodes, services, jobs, types.

The test stores random records, and compares each answer with a computation from the same records.
"""

import random
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from tests.e2e.alibaba import CURRENT, EAS, FORMER, PAI_STUDIO, ask, needs_current
from tests.support.frames import FRAMES, records
from tests.support.processes import API, running

GIB = 2**30
MINUTE, DAY = 60_000, 86_400_000
GROUPS = ("rg-2", "rg-10", "rg-jobs")
"""Resource groups. The last one appears only in jobs, and its nodes come from its jobs."""
KINDS = ((8, 32, 0), (96, 768, 8), (128, 1024, 8))
STATES = ("Queued", "Running", "Running", "Succeeded", "Failed", "Stopped")
TYPES: dict[str, dict[str, Any]] = {
    "ecs.gn7i-c8g1.2xlarge": {"cpu": 8.0, "memory": 30 * GIB, "gpu_type": "NVIDIA A10", "gpu_count": 1},
    "ecs.g7.large": {"cpu": 2.0, "memory": 8 * GIB},
    "ml.gu7xf.c96m1600.8-gu7xf": {"cpu": 96.0, "memory": 1600 * GIB, "gpu_type": "GU7X", "gpu_count": 8},
}
pytestmark = [pytest.mark.slow, needs_current]


def _node(choose: random.Random, at: int) -> dict[str, Any]:
    cores, memory, devices = choose.choice(KINDS)
    names = [{"device": f"gpu{number}", "name": "NVIDIA A100-SXM4-80GB"} for number in range(devices)]
    return {
        "name": f"n{at}",
        "cluster": f"c{at % 2}",
        "resource_group": GROUPS[at % 2],
        # The kernel's own share differs between machines.
        "info": {"cores": cores, "memory": memory * GIB - choose.randrange(2**20), "devices": names},
    }


def _job(choose: random.Random, at: int, now_ms: int) -> dict[str, Any]:
    group, state = choose.choice(GROUPS), choose.choice(STATES)
    cluster, own = ("", ["m1", "m2"]) if group == "rg-jobs" else (f"c{GROUPS.index(group)}", _names(group))
    kind = choose.choice([None, *TYPES])
    created = now_ms - choose.randrange(3 * DAY)
    ended = {"end": created + 2 * MINUTE} if state in {"Succeeded", "Failed", "Stopped"} else {}
    started = {} if state == "Queued" else {"start": created + MINUTE}
    return {
        "job_id": f"job-{at}",
        "name": choose.choice(["", f"My train {at}"]),
        "type": "PyTorchJob",
        "state": state,
        "user": choose.choice(["ann", "bob"]),
        "workspace": choose.choice(["", "w1", "w2"]),
        "resource_group": group,
        "created": created,
        **started,
        **ended,
        "labels": {"team": choose.choice(["nlp", "vision"])},
        **(
            {"instance_type": {"id": kind, **TYPES[kind]}}
            if kind
            else {"limits": {"cpu": 1.5, "memory": 3 * GIB, "gpu": 1}}
        ),
        "replicas": [
            {
                "name": f"worker-{number}",
                "node": choose.choice(own),
                "cluster": cluster,
                "state": state,
                **started,
                **ended,
            }
            for number in range(choose.randrange(1, 4))
        ],
    }


def _names(group: str) -> list[str]:
    return [f"n{at}" for at in range(12) if GROUPS[at % 2] == group]


class World:
    """Server, and its stored records."""

    def __init__(self, server: Any, seed: int) -> None:
        choose = random.Random(seed)
        self.server, self.now_ms = server, int(time.time() * 1000)
        self.nodes = {one["name"]: one for one in (_node(choose, at) for at in range(12))}
        self.jobs = {one["job_id"]: one for one in (_job(choose, at, self.now_ms) for at in range(60))}
        body = {"nodes": list(self.nodes.values()), "jobs": list(self.jobs.values())}
        assert server.ingest(records(body)).json()["rejected"] == {}
        theirs = server.request("POST", "/keys", {"name": "w", "role": "writer", "project": "other"}).json()
        secret = {"job_id": "secret", "resource_group": "rg-secret", "state": "Running"}
        hidden = {"name": "hidden", "cluster": "c0", "resource_group": "rg-2", "info": {"cores": 999}}
        headers = {"Authorization": f"Bearer {theirs['token']}", "Content-Type": FRAMES}
        foreign = records({"jobs": [secret], "nodes": [hidden]})
        assert server.call("POST", f"{API}/ingest", foreign, headers).status == 200
        self.key = server.request("POST", "/keys", {"name": "r", "role": "reader", "project": "default"}).json()

    @property
    def config(self) -> dict[str, str]:
        pair = {name: self.key[name] for name in ("access_key_id", "access_key_secret")}
        return {"endpoint": self.server.url, **pair}

    def studio(self, operation: str, *path: str, **request: Any) -> dict[str, Any]:
        return {"config": self.config, "operation": operation, "path": path, "request": request}

    def client(self, product: str, call: str, **request: Any) -> dict[str, Any]:
        return {"config": self.config, "product": product, "call": call, "request": request}

    def newest_first(self, jobs: Iterable[Mapping[str, Any]]) -> list[str]:
        return [one["job_id"] for one in sorted(jobs, key=lambda one: (one["created"], one["job_id"]), reverse=True)]

    def nodes_of(self, group: str) -> list[str]:
        if group == "rg-jobs":
            recent = (one for one in self.jobs.values() if one["resource_group"] == group and self.meets_today(one))
            return sorted({replica["node"] for one in recent for replica in one["replicas"]})
        return sorted(_names(group), key=lambda name: int(name[1:]))

    def meets_today(self, job: Mapping[str, Any]) -> bool:
        end: int = job.get("end", self.now_ms)
        return end >= self.now_ms - DAY

    def running(self, group: str) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        """Return the running replicas of a group with their jobs."""
        jobs = [one for one in self.jobs.values() if one["resource_group"] == group and one["state"] == "Running"]
        return [(job, replica) for job in jobs for replica in job["replicas"]]


def of_replica(job: Mapping[str, Any], name: str) -> float:
    """Return the cores, bytes or GPUs of one replica."""
    kind = job.get("instance_type")
    if kind is None:
        return float(job["limits"][name])
    return float(kind.get({"cpu": "cpu", "memory": "memory", "gpu": "gpu_count"}[name]) or 0)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    with running(tmp_path_factory.mktemp("listings") / "data") as server:
        yield World(server, 32)


def bodies(answers: Iterable[Mapping[str, Any]]) -> list[Any]:
    found = list(answers)
    assert [one for one in found if one.get("statusCode") != 200] == []
    return [one["body"] for one in found]


@pytest.mark.parametrize("python", [CURRENT, FORMER], ids=["current", "former"])
def test_resource_groups(world, python):
    if not python.exists():
        pytest.skip("no environment of that generation: `make sdk` builds it")
    listed, page, of_none, *each = bodies(
        ask(
            world.studio("list_resource_groups"),
            world.studio("list_resource_groups", SortBy="DisplayName", Order="desc", PageNumber=2, PageSize=1),
            world.studio("list_resource_groups", Name="rg-secret"),
            *(world.studio("get_resource_group", name) for name in GROUPS),
            python=python,
            script=PAI_STUDIO,
        )
    )
    assert [one["ResourceGroupID"] for one in listed["ResourceGroups"]] == ["rg-2", "rg-10", "rg-jobs"]
    assert [one["NodeCount"] for one in listed["ResourceGroups"]] == [len(world.nodes_of(name)) for name in GROUPS]
    assert listed["TotalCount"] == 3
    assert ([one["Name"] for one in page["ResourceGroups"]], page["TotalCount"]) == (["rg-10"], 3)
    assert (of_none["ResourceGroups"], of_none["TotalCount"]) == ([], 0)
    assert [(one["Name"], one["Status"], one.get("ClusterID")) for one in each] == [
        ("rg-2", "Ready", "c0"), ("rg-10", "Ready", "c1"), ("rg-jobs", "Ready", None),
    ]  # fmt: skip


def test_nodes_and_machine_groups(world):
    verbose, gpus, small, machines, by_id, unknown, neither = ask(
        world.studio("list_nodes", ResourceGroupIds="rg-2,rg-10", Verbose=True),
        world.studio("list_nodes", QuotaId="rg-10", AcceleratorType="GPU", GPUType="a100", NodeStatuses="Ready"),
        world.studio(
            "list_nodes", ResourceGroupIds="rg-2,rg-10", SortBy="Memory", Order="asc", PageSize=5, PageNumber=2
        ),
        world.studio("list_resource_group_machine_groups", "rg-10"),
        world.studio("list_nodes", QuotaId="rg-10", NodeNames="n1,n3,n2"),
        world.studio("list_nodes", QuotaId="rg-secret"),
        world.studio("list_nodes"),
        script=PAI_STUDIO,
    )
    assert [one["NodeName"] for one in verbose["body"]["Nodes"]] == [f"n{at}" for at in range(12)]
    for one in verbose["body"]["Nodes"]:
        info, here = world.nodes[one["NodeName"]]["info"], []
        for group in ("rg-2", "rg-10"):
            here += [(job, replica) for job, replica in world.running(group) if replica["node"] == one["NodeName"]]
        assert one["ResourceGroupId"] == world.nodes[one["NodeName"]]["resource_group"]
        assert (float(one["CPU"]), int(one["GPU"])) == (info["cores"], len(info["devices"]))
        assert float(one["Memory"]) == pytest.approx(info["memory"] / GIB, rel=1e-11)
        for field, name, unit in (("RequestCPU", "cpu", 1), ("RequestMemory", "memory", GIB), ("RequestGPU", "gpu", 1)):
            assert float(one[field]) == pytest.approx(sum(of_replica(job, name) for job, _ in here) / unit)
        assert (one["PodNum"], one["WorkloadNum"]) == (len(here), len({job["job_id"] for job, _ in here}))
        assert [user["UserId"] for user in one["Users"]] == sorted({job["user"] for job, _ in here})
        assert one["NodeStatus"] == "Ready"
    own = [world.nodes[name] for name in _names("rg-10")]
    assert {one["NodeName"] for one in gpus["body"]["Nodes"]} == {one["name"] for one in own if one["info"]["devices"]}
    by_memory = sorted(world.nodes.values(), key=lambda one: one["info"]["memory"])
    assert [one["NodeName"] for one in small["body"]["Nodes"]] == [one["name"] for one in by_memory[5:10]]
    assert small["body"]["TotalCount"] == 12
    kinds = Counter(
        (one["info"]["cores"], round(one["info"]["memory"] / GIB), len(one["info"]["devices"])) for one in own
    )
    groups = machines["body"]["MachineGroups"]
    assert Counter({(one["Cpu"], one["Memory"], one["Gpu"]): one["EcsCount"] for one in groups}) == kinds
    assert machines["body"]["TotalCount"] == str(len(kinds))
    assert [one["NodeName"] for one in by_id["body"]["Nodes"]] == ["n1", "n3"]
    assert {one["MachineGroupId"] for one in by_id["body"]["Nodes"]} <= {one["MachineGroupID"] for one in groups}
    assert unknown["code"] == "InvalidResourceGroupID.NotFound"
    assert neither["code"] == "MissingParameter"


def test_quotas_have_the_amounts_of_their_groups(world):
    quotas, by_cpu, *totals = bodies(
        ask(
            world.studio("list_quotas"),
            world.studio("list_quotas", SortBy="CPU", Order="desc", PageSize=1, Verbose=False),
            *(world.studio("get_resource_group_total", ResourceGroupID=name) for name in GROUPS),
            *(world.studio("get_resource_group_request", ResourceGroupID=name) for name in GROUPS),
            script=PAI_STUDIO,
        )
    )
    assert [one["QuotaId"] for one in quotas["Quotas"]] == list(GROUPS)
    for quota, whole, requested in zip(quotas["Quotas"], totals[:3], totals[3:], strict=True):
        group, details = quota["QuotaId"], quota["QuotaDetails"]
        running_here = world.running(group)
        for name, key in (("cpu", "CPU"), ("gpu", "GPU")):
            amount = sum(of_replica(job, name) for job, _ in running_here)
            assert float(details["AllocatedQuota"][key]) == pytest.approx(amount)
        memory = float(details["AllocatedQuota"]["Memory"].removesuffix("Gi"))
        assert memory == pytest.approx(sum(of_replica(job, "memory") for job, _ in running_here) / GIB)
        waiting = [
            (job, replica)
            for job in world.jobs.values()
            if job["resource_group"] == group and job["state"] in {"Running", "Queued"}
            for replica in job["replicas"]
        ]
        submitted = sum(of_replica(job, "cpu") for job, _ in waiting)
        assert float(details["SelfSubmittedQuota"]["CPU"]) == pytest.approx(submitted)
        if group != "rg-jobs":
            cores = sum(world.nodes[name]["info"]["cores"] for name in _names(group))
            assert float(details["ActualMinQuota"]["CPU"]) == cores == whole["totalCPU"]
        assert int(details["ActualMinQuota"]["GPU"]) == whole["totalGPU"]
        assert int(details["AllocatedQuota"]["GPU"]) == requested["requestGPU"]
        workspaces = {one["workspace"] for one in world.jobs.values() if one["resource_group"] == group} - {""}
        assert {one["WorkspaceId"] for one in quota["Workspaces"]} == workspaces
    largest = max(quotas["Quotas"], key=lambda one: float(one["QuotaDetails"]["ActualMinQuota"]["CPU"]))
    assert [one["QuotaId"] for one in by_cpu["Quotas"]] == [largest["QuotaId"]]
    assert "QuotaDetails" not in by_cpu["Quotas"][0]


STUDIO = {
    "Queued": "Submitted",
    "Running": "Running",
    "Succeeded": "Succeed",
    "Failed": "Failed",
    "Stopped": "Terminated",
}
SERVICE = {"Queued": "Waiting", "Running": "Running", "Succeeded": "Complete", "Failed": "Failed", "Stopped": "Stopped"}


def chosen(choose: random.Random) -> dict[str, str]:
    """Return a random selection of jobs, by our names."""
    names = {"workspace": ["w1", "w2"], "state": list(STUDIO), "team": ["nlp", "vision"], "part": ["TRAIN 1", "job-2"]}
    return {name: choose.choice(values) for name, values in names.items() if choose.random() < 0.5}


def fitting(world: World, wanted: Mapping[str, str]) -> list[dict[str, Any]]:
    def facts(job: Mapping[str, Any]) -> dict[str, str]:
        return {"workspace": job["workspace"], "state": job["state"], "team": job["labels"]["team"]}

    named = {name: value for name, value in wanted.items() if name != "part"}
    return [job for job in world.jobs.values() if named.items() <= facts(job).items()]


def test_training_jobs_by_random_filters(world):
    choose = random.Random(7)
    asks, expected = [], []
    for _ in range(25):
        wanted = chosen(choose)
        size, number = choose.choice([(100, 1), (3, 2)])
        request: dict[str, Any] = {"PageSize": size, "PageNumber": number}
        request |= {"WorkspaceId": wanted["workspace"]} if "workspace" in wanted else {}
        request |= {"Status": STUDIO[wanted["state"]]} if "state" in wanted else {}
        request |= {"Labels": {"team": wanted["team"]}} if "team" in wanted else {}
        found = fitting(world, wanted)
        if "part" in wanted:
            request["TrainingJobName"] = wanted["part"]
            found = [job for job in found if wanted["part"].casefold() in (job["name"] or job["job_id"]).casefold()]
        asks.append(world.studio("list_training_jobs", **request))
        expected.append((world.newest_first(found)[(number - 1) * size : number * size], len(found)))
    for (names, total), body in zip(expected, bodies(ask(*asks, script=PAI_STUDIO)), strict=True):
        assert ([one["TrainingJobId"] for one in body["TrainingJobs"]], body["TotalCount"]) == (names, total)
        for one in body["TrainingJobs"]:
            job = world.jobs[one["TrainingJobId"]]
            assert (one["Status"], one["UserId"]) == (STUDIO[job["state"]], job["user"])
            assert one["ComputeResource"]["InstanceCount"] == len(job["replicas"])
            assert float(one["ComputeResource"]["InstanceSpec"]["CPU"]) == of_replica(job, "cpu")


def eas(world: World, operation: str, *path: str, **request: Any) -> dict[str, Any]:
    return {"config": world.config, "operation": operation, "path": path, "request": request}


def test_services_by_random_filters(world):
    choose = random.Random(8)
    asks, expected = [], []
    for _ in range(25):
        wanted = chosen(choose)
        size, number = choose.choice([(100, 1), (3, 2)])
        request: dict[str, Any] = {"PageSize": size, "PageNumber": number}
        request |= {"WorkspaceId": wanted["workspace"]} if "workspace" in wanted else {}
        request |= {"ServiceStatus": SERVICE[wanted["state"]]} if "state" in wanted else {}
        request |= {"Label": {"team": wanted["team"]}} if "team" in wanted else {}
        found = fitting(world, wanted)
        if "part" in wanted:
            part = request["Filter"] = wanted["part"]
            found = [job for job in found if part.casefold() in f"{job['name']}\n{job['job_id']}".casefold()]
        asks.append(eas(world, "list_services", **request))
        expected.append((world.newest_first(found)[(number - 1) * size : number * size], len(found)))
    for (names, total), body in zip(expected, bodies(ask(*asks, script=EAS)), strict=True):
        assert ([one["ServiceName"] for one in body["Services"]], body["TotalCount"]) == (names, total)
        for one in body["Services"]:
            job = world.jobs[one["ServiceName"]]
            size = len(job["replicas"])
            waiting, alive = (size if job["state"] == state else 0 for state in ("Queued", "Running"))
            assert (one["Status"], one["Resource"]) == (SERVICE[job["state"]], job["resource_group"])
            assert (one["TotalInstance"], one["RunningInstance"], one["PendingInstance"]) == (size, alive, waiting)
            assert one["Memory"] == of_replica(job, "memory") / 2**20


def test_resources_lead_to_their_shippers_and_services_to_their_lines(world):
    """Names of a listing are accepted by the other operations."""
    listed, by_gpus, services = bodies(
        ask(
            eas(world, "list_resources"),
            eas(world, "list_resources", Sort="GpuCount", Order="Asc", PageSize=2),
            eas(world, "list_services", ServiceName="job-1"),
            script=EAS,
        )
    )
    found = {one["ResourceId"]: one for one in listed["Resources"]}
    assert set(found) == set(GROUPS)
    for name in ("rg-2", "rg-10"):
        infos = [world.nodes[node]["info"] for node in _names(name)]
        assert found[name]["InstanceCount"] == len(infos)
        assert found[name]["CpuCount"] == sum(info["cores"] for info in infos)
        assert found[name]["GpuCount"] == sum(len(info["devices"]) for info in infos)
    counts = sorted(one.get("GpuCount", 0) for one in found.values())
    assert [one["GpuCount"] for one in by_gpus["Resources"]] == counts[:2]
    lines = [
        {"text": f"line {at} {'Ä' * (at % 3)}", "time": world.now_ms - 1000 + at, "replica": "worker-0"}
        for at in range(25)
    ]
    world.server.request("POST", "/jobs/job-1/logs", {"lines": lines})
    [service] = services["Services"]
    path = (service["Region"], service["ServiceName"])
    group = found["rg-jobs"]
    second, by_word, of_instance, nobody, shipper = ask(
        eas(world, "describe_service_log", *path, PageNum=2, PageSize=10),
        eas(world, "describe_service_log", *path, Keyword="ää"),
        eas(world, "describe_service_log", *path, InstanceName="worker-0", PageSize=1000),
        eas(world, "describe_service_log", path[0], "nobody"),
        {**eas(world, "describe_resource_log", group["ClusterId"], group["ResourceId"]), "request": None},
        script=EAS,
    )
    texts = [line["text"] for line in lines]
    assert second["body"]["Logs"] == texts[10:20]
    assert (second["body"]["TotalCount"], second["body"]["TotalPageNum"]) == (25, 3)
    assert by_word["body"]["Logs"] == [text for text in texts if "ÄÄ" in text]
    assert of_instance["body"]["Logs"] == texts
    assert nobody["code"] == "InvalidServiceName.NotFound"
    assert shipper["code"] != "InvalidParameter", "a key of role reader may not ask, but the path is one"


def test_cluster_nodes_page_by_page(world):
    pages, of_group, stopped, described, hidden, elsewhere = ask(
        {**world.client("eflo", "list_cluster_nodes", ClusterId="c0", MaxResults=4), "pages": True},
        world.client("eflo", "list_cluster_nodes", ClusterId="c1", ResourceGroupId="rg-10", OperatingStates=["Using"]),
        world.client("eflo", "list_cluster_nodes", ClusterId="c0", OperatingStates=["Stopped", "Unknown"]),
        world.client("eflo", "describe_node", NodeId="n3"),
        world.client("eflo", "describe_node", NodeId="hidden"),
        world.client("eflo", "list_cluster_nodes", ClusterId="c9"),
    )
    names = [[one["NodeId"] for one in page["body"]["Nodes"]] for page in pages]
    assert names == [["n0", "n2", "n4", "n6"], ["n8", "n10"]]
    assert [one["NodeId"] for one in of_group["body"]["Nodes"]] == _names("rg-10")
    assert stopped["body"]["Nodes"] == []
    assert (described["body"]["ClusterId"], described["body"]["ResourceGroupId"]) == ("c1", "rg-10")
    assert (described["body"]["Hostname"], described["body"]["OperatingState"]) == ("n3", "Using")
    assert hidden["code"] == elsewhere["code"] == "ResourceNotFound"


def test_the_instance_types_of_jobs(world):
    used = {job["instance_type"]["id"] for job in world.jobs.values() if "instance_type" in job}
    assert used == set(TYPES), "the seed gives every type to some job"
    everything, gpus, lingjun = bodies(
        ask(
            world.client("dlc", "list_ecs_specs", PageSize=100),
            world.client("dlc", "list_ecs_specs", AcceleratorType="GPU", SortBy="Memory", Order="desc"),
            world.client("dlc", "list_ecs_specs", ResourceType="Lingjun"),
        )
    )
    assert [one["InstanceType"] for one in everything["EcsSpecs"]] == sorted(TYPES)
    for one in everything["EcsSpecs"]:
        kind = TYPES[one["InstanceType"]]
        assert (one["Cpu"], one["Memory"], one.get("Gpu")) == (kind["cpu"], kind["memory"] / GIB, kind.get("gpu_count"))
    assert [one["Gpu"] for one in gpus["EcsSpecs"]] == [8, 1]
    assert [one["InstanceType"] for one in lingjun["EcsSpecs"]] == ["ml.gu7xf.c96m1600.8-gu7xf"]


def test_the_url_form_lists_too(world):
    header = {"Authorization": f"Bearer {world.key['token']}"}
    for path, member in (
        ("/api/PaiStudio/2022-01-12/ListNodes?QuotaId=rg-10", "Nodes"),
        ("/api/PaiStudio/2022-01-12/GetResourceGroup?ResourceGroupID=rg-10", "Name"),
        ("/api/eas/2021-07-01/ListServices?PageSize=1", "Services"),
        ("/api/eflo-controller/2022-12-15/ListClusterNodes?ClusterId=c1", "Nodes"),
        ("/api/pai-dlc/2020-12-03/ListEcsSpecs", "EcsSpecs"),
    ):
        reply = world.server.call("GET", path, headers=header)
        assert (reply.status, bool(reply.json()[member])) == (200, True), path
