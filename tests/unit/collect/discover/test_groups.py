"""Tests of Slurm's tasks, pods and containers, found from the paths of their control groups."""

import pytest

from jobmeter.collect.discover.groups import find_pod_place, find_slurm_place

UID = "0a1b2c3d-0001-0002-0003-00000000abcd"
ID = "dbd988cbf2f53da1be309e368028f59ad28577a3eb0a93623ada44092a93175e"
_SLICE = f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UID.replace('-', '_')}.slice"


@pytest.mark.parametrize(
    ("path", "job", "step", "task", "own"),
    [
        ("/slurm/uid_1000/job_7/step_3/task_1", "7", "3", 1, True),
        ("/slurm_node12/uid_0/job_7/step_batch", "7", "batch", None, True),
        ("/slurm/uid_0/job_7/step_extern/task_0", "7", "extern", 0, True),
        ("/slurm/uid_0/job_7/step_0", "7", "0", None, False),
        ("/slurm/uid_0/job_7", "7", "", None, False),
        ("/docker/abc/slurm/uid_0/job_7/step_0/task_4/inner", "7", "0", 4, True),
    ],
)
def test_slurm_version_1(path, job, step, task, own):
    place = find_slurm_place({"memory": path})
    assert place is not None
    assert (place.job, place.step, place.task) == (job, step, task)
    assert place.groups == ({"memory": path.removesuffix("/inner")} if own else {})


@pytest.mark.parametrize(
    ("path", "job", "step", "task", "own"),
    [
        ("/system.slice/slurmstepd.scope/job_7/step_3/user/task_1", "7", "3", 1, "/user/task_1"),
        ("/system.slice/n1_slurmstepd.scope/job_7/step_batch/user/task_0", "7", "batch", 0, "/user/task_0"),
        ("/system.slice/slurmstepd.scope/s8FXKTA79XAR00/step_0/user/task_2", "", "0", 2, "/user/task_2"),
        ("/system.slice/slurmstepd.scope/job_7/step_0/slurm", "7", "0", None, None),
    ],
)
def test_slurm_version_2(path, job, step, task, own):
    place = find_slurm_place({"": path})
    assert place is not None
    assert (place.job, place.step, place.task) == (job, step, task)
    assert place.groups == ({"": path} if own else {})


@pytest.mark.parametrize(
    "path", ["/", "/user.slice/user-0.slice", "/slurm", "/slurmstepd.scope", "/system.slice/slurmd.service"]
)
def test_other_paths_are_no_task_of_slurm(path):
    assert find_slurm_place({"": path, "memory": path}) is None


@pytest.mark.parametrize(
    ("path", "own"),
    [
        (f"/kubepods/pod{UID}/abc", f"/kubepods/pod{UID}"),
        (f"/kubepods/besteffort/pod{UID}", f"/kubepods/besteffort/pod{UID}"),
        (
            f"/docker/aaa/kubelet/kubepods/pod11111111-1111-1111-1111-111111111111/x/kubepods/pod{UID}/y",
            f"/docker/aaa/kubelet/kubepods/pod11111111-1111-1111-1111-111111111111/x/kubepods/pod{UID}",
        ),
    ],
)
def test_pods(path, own):
    place = find_pod_place({"": path})
    assert place is not None
    assert place.uid == UID
    assert place.groups == {"": own}


@pytest.mark.parametrize(
    "path",
    [
        f"/kubepods/pod{UID}/{ID}",  # recorded: kubelet 1.20 with cgroupfs and containerd 1.6, versions 1 and 2
        f"/kubepods/burstable/pod{UID}/{ID}",
        f"{_SLICE}/cri-containerd-{ID}.scope",
        f"{_SLICE}/crio-{ID}.scope",
        f"{_SLICE}/docker-{ID}.scope",
        f"/kubepods-burstable-pod{UID.replace('-', '_')}.slice:cri-containerd:{ID}",
        f"/system.slice/containerd.service/kubepods-burstable-pod{UID.replace('-', '_')}.slice:cri-containerd:{ID}",
    ],
)
def test_containers_of_pods(path):
    place = find_pod_place({"": f"{path}/init.scope", "memory": path})
    assert place is not None
    assert (place.uid, place.container) == (UID, ID)
    assert place.groups == {"": path, "memory": path}


def _layouts():
    """Yield paths of containers by cgroup driver, class of the pod, runtime and nesting."""
    uid, low = UID, UID.replace("-", "_")
    for kind in ("", "burstable", "besteffort"):
        between, dashed = (f"/{kind}" if kind else ""), (f"-{kind}" if kind else "")
        yield f"/kubepods{between}/pod{uid}/{ID}"
        folders = "/kubepods.slice" + (f"/kubepods-{kind}.slice" if kind else "")
        pod = f"{folders}/kubepods{dashed}-pod{low}.slice"
        for name in (f"cri-containerd-{ID}.scope", f"crio-{ID}.scope", f"docker-{ID}.scope"):
            yield f"{pod}/{name}"
        for above in ("", "/system.slice/containerd.service", "/system.slice/k3s.service"):
            yield f"{above}/kubepods{dashed}-pod{low}.slice:cri-containerd:{ID}"
        inside = "/kubelet.slice/kubelet-kubepods.slice" + (f"/kubelet-kubepods-{kind}.slice" if kind else "")
        yield f"/docker/{ID[::-1]}{inside}/kubelet-kubepods{dashed}-pod{low}.slice/cri-containerd-{ID}.scope"
        yield f"/docker/{ID[::-1]}/kubelet/kubepods{between}/pod{uid}/{ID}"
    yield f"/kubepods/burstable/pod{UID.replace('-', '')}/{ID}"  # a static pod
    yield f"/kubepods.slice/kubepods-pod{low}.slice/crio-{ID}.scope/container"  # crun's own group
    yield f"/k8s.io/kubepods/burstable/pod{uid}/{ID}"
    yield f"/kubepods/burstable/pod{uid}/{ID}/init.scope"
    yield f"/system.slice/rke2-agent.service/kubepods/besteffort/pod{uid}/{ID}"


def test_every_layout_of_kubernetes_names_the_pod_and_the_container():
    paths = list(_layouts())
    places = [find_pod_place({"": path}) for path in paths]
    places_of_pod = [place for place in places if place and place.uid.replace("-", "") == UID.replace("-", "")]
    assert [path for path, place in zip(paths, places, strict=True) if place is None or place.container != ID] == []
    assert len(places_of_pod) == len(paths) == 32


def test_the_monitor_of_a_container_is_not_in_its_pod():
    assert find_pod_place({"": f"{_SLICE}/crio-conmon-{ID}.scope"}) is None


@pytest.mark.parametrize("path", ["/", "/podman/abc", "/kubepods/podx/y", "/tripod0a1b2c3d"])
def test_other_paths_are_no_pod(path):
    assert find_pod_place({"": path}) is None
