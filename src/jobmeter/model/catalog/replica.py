"""Metrics of a job's replica: CPU, memory, network, disk, storage."""

from functools import partial

from jobmeter.model.catalog.metric import Aggregate, Kind, Metric, Scope, utilization

_R = Scope.REPLICA
_metric = partial(Metric, scope=_R)
_time = partial(_metric, unit="s", kind=Kind.COUNTER, read_unit="1")
_amount = partial(_metric, on_node=Aggregate.SUM)
_total = partial(_amount, kind=Kind.COUNTER)

METRICS: tuple[Metric, ...] = (
    _total("cpu.time", "s", "CPU time used, user and system.", read_unit="{core}"),
    _amount(
        "cpu.usage",
        "{core}",
        "Cores in use.",
        rate_of="cpu.time",
        names={"baseten": "cpu_usage", "cms": "CPU_USED"},
    ),
    _amount("cpu.limit", "{core}", "Cores that the replica may use."),
    _time(
        "cpu.throttled.time",
        text="Time in which the replica was throttled by its CPU quota, over all of its tasks. Without a quota of its "
        "own group: by the nearest group above, which others may share, since its first measurement.",
    ),
    utilization(
        "cpu",
        "Cores in use over cores allowed.",
        _R,
        maximum=10.0,
        names={"pai-dlc": "CpuCoreUsage", "pai-studio": "CpuCoreUsage", "modelarts": "cpuUsage", "cms": "CPU_UTIL"},
    ),
    _amount(
        "memory.usage",
        "By",
        "Memory in use: the working set of its control group, without file cache that can be freed at once. "
        "Without a group: the proportional set sizes of its processes (Pss), in which a page that several share counts "
        "once.",
        names={"baseten": "cpu_memory_usage_bytes", "cms": "MEMORY_USED"},
    ),
    _amount("memory.limit", "By", "Memory that the replica may use."),
    _metric(
        "memory.peak",
        "By",
        "Most memory in use at once so far: at a sample or, by the high-water marks of its processes, between two. "
        "Excludes file cache that can be freed at once.",
        on_node=Aggregate.MAX,  # replicas may reach their peaks at different times
    ),
    _total("memory.oom.kills", "{process}", "Processes of the replica that were killed because memory ran out."),
    _time("pressure.cpu", text="Time in which some task of the replica waited for a CPU."),
    _time("pressure.memory", text="Time in which some task of the replica waited for memory."),
    _time("pressure.io", text="Time in which some task of the replica waited for storage."),
    _amount("process.count", "{process}", "Processes of the replica."),
    _amount("thread.count", "{thread}", "Threads of the replica."),
    utilization(
        "memory",
        "Memory in use over memory allowed.",
        _R,
        minimum=-0.05,
        names={"pai-dlc": "MemoryUsage", "pai-studio": "MemoryUsage", "modelarts": "memUsage", "cms": "MEMORY_UTIL"},
    ),
    _total(
        "network.receive",
        "By",
        "Bytes received over the network.",
        names={"pai-dlc": "NetworkInputRate", "pai-studio": "NetworkInputRate", "cms": "NETWORK_RECEIVE"},
    ),
    _total(
        "network.transmit",
        "By",
        "Bytes sent over the network.",
        names={"pai-dlc": "NetworkOutputRate", "pai-studio": "NetworkOutputRate", "cms": "NETWORK_TRANSMIT"},
    ),
    _total(
        "disk.read",
        "By",
        "Bytes read from storage.",
        names={"pai-dlc": "DiskReadRate", "pai-studio": "DiskReadRate", "cms": "DISK_READ"},
    ),
    _total(
        "disk.write",
        "By",
        "Bytes written to storage.",
        names={"pai-dlc": "DiskWriteRate", "pai-studio": "DiskWriteRate", "cms": "DISK_WRITE"},
    ),
    _amount("storage.processes", "{process}", "Processes whose working directory is on a filesystem, by mount point."),
    _amount("storage.files.written", "{file}", "Files that are open for writing on a filesystem, by mount point."),
    _amount(
        "storage.ephemeral.usage",
        "By",
        "Ephemeral storage in use.",
        names={"baseten": "ephemeral_storage.usage_bytes"},
    ),
    _amount("storage.ephemeral.limit", "By", "Ephemeral storage allowed."),
    utilization(
        "storage.ephemeral",
        "Ephemeral storage in use over allowed.",
        _R,
        names={"baseten": "ephemeral_storage.utilization"},
    ),
    _metric("storage.cache.usage", "By", "Cache storage in use.", names={"baseten": "cache.usage_bytes"}),
    _metric("storage.cache.limit", "By", "Cache storage allowed."),
    utilization("storage.cache", "Cache storage in use over allowed.", _R, names={"baseten": "cache.utilization"}),
)
