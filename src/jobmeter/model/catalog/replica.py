"""Metrics of a job's replica: CPU, memory, network, disk, storage."""

from functools import partial

from jobmeter.model.catalog.metric import Aggregate, Display, Kind, Metric, MetricScope, make_utilization

_R = MetricScope.REPLICA
_HIDDEN = Display.HIDDEN
_metric = partial(Metric, scope=_R)
_time = partial(_metric, unit="s", kind=Kind.COUNTER, read_unit="1")
_amount = partial(_metric, on_node=Aggregate.SUM)
_count = partial(_metric, kind=Kind.COUNTER)
_total = partial(_amount, kind=Kind.COUNTER)

METRICS: tuple[Metric, ...] = (
    _total("cpu.time", "s", "CPU time used, user and system.", read_unit="{core}", views=_HIDDEN),
    _amount(
        "cpu.usage",
        "{core}",
        "Cores in use.",
        rate_of="cpu.time",
        names={"baseten": "cpu_usage", "cms": "CPU_USED"},
        title="CPU in use",
        column="CPU",
        views=Display.FIRST | Display.RANKS | Display.USE | Display.CORE,
    ),
    _amount("cpu.limit", "{core}", "Cores that the replica may use.", title="CPU limit", views=_HIDDEN),
    _time(
        "cpu.throttled.time",
        text="Time in which the replica was throttled by its CPU quota, over all of its tasks. Without a quota of its "
        "own group: by the nearest group above, which others may share, since its first measurement.",
        title="CPU throttled",
        views=Display.FIRST,
    ),
    _count("cpu.periods", "{period}", "Periods of the CPU quota in which the replica ran.", views=_HIDDEN),
    _count(
        "cpu.throttled.periods",
        "{period}",
        "Periods of the CPU quota in which the replica was throttled.",
        title="CPU periods throttled",
    ),
    make_utilization(
        "cpu",
        "Cores in use over cores allowed.",
        _R,
        maximum=10.0,
        names={"pai-dlc": "CpuCoreUsage", "pai-studio": "CpuCoreUsage", "modelarts": "cpuUsage", "cms": "CPU_UTIL"},
        title="CPU, share of limit",
        phrase="CPU in use",
        views=Display.CHART | Display.CORE,
    ),
    _amount(
        "memory.usage",
        "By",
        "Memory in use: the working set of its control group, without file cache that can be freed at once. "
        "Without a group: the proportional set sizes of its processes (Pss), in which a page that several share counts "
        "once.",
        names={"baseten": "cpu_memory_usage_bytes", "cms": "MEMORY_USED"},
        title="Memory in use",
        column="Memory",
        views=Display.FIRST | Display.RANKS | Display.CORE,
    ),
    _amount("memory.limit", "By", "Memory that the replica may use.", title="Memory limit", views=_HIDDEN),
    _metric(
        "memory.peak",
        "By",
        "Most memory in use at once so far: at a sample or, by the high-water marks of its processes, between two. "
        "Excludes file cache that can be freed at once.",
        on_node=Aggregate.MAX,  # replicas may reach their peaks at different times
        title="Memory, highest",
        phrase="highest memory in use",
        views=Display.CHART | Display.SUMMARY,
    ),
    _amount("memory.anonymous", "By", "Memory of its control group that no file backs."),
    _amount("memory.file", "By", "File contents that its control group is charged for."),
    _amount("memory.shared", "By", "Shared memory and files in memory; a part of memory.file."),
    _amount("memory.kernel", "By", "Memory of the kernel that its control group is charged for."),
    _total(
        "memory.limit.reached",
        "{event}",
        "Times that the replica reached its limit of memory and the kernel had to reclaim some.",
        title="Memory limit reached",
    ),
    _total(
        "memory.limit.slowed",
        "{event}",
        "Times that the replica was slowed down because it exceeded the high mark of its memory.",
        title="Slowed for memory",
    ),
    _total(
        "memory.oom.kills",
        "{process}",
        "Processes of the replica that were killed because memory ran out.",
        title="Killed for memory",
        views=Display.FIRST,
    ),
    _time(
        "pressure.cpu",
        text="Time in which some task of the replica waited for a CPU.",
        title="Waiting for CPU",
        phrase="time of waiting for a CPU",
    ),
    _time(
        "pressure.memory",
        text="Time in which some task of the replica waited for memory.",
        title="Waiting for memory",
        phrase="time of waiting for memory",
    ),
    _time(
        "pressure.io",
        text="Time in which some task of the replica waited for storage.",
        title="Waiting for disks",
        phrase="time of waiting for storage",
    ),
    _time("pressure.cpu.full", text="Time in which all tasks of the replica waited for a CPU."),
    _time(
        "pressure.memory.full",
        text="Time in which all tasks of the replica waited for memory.",
        title="All waiting for memory",
        phrase="time of nothing but waiting for memory",
    ),
    _time(
        "pressure.io.full",
        text="Time in which all tasks of the replica waited for storage.",
        title="All waiting for disks",
        phrase="time of nothing but waiting for storage",
    ),
    _amount("process.count", "{process}", "Processes of the replica."),
    _amount("thread.count", "{thread}", "Threads of the replica."),
    make_utilization(
        "memory",
        "Memory in use over memory allowed.",
        _R,
        minimum=-0.05,
        names={"pai-dlc": "MemoryUsage", "pai-studio": "MemoryUsage", "modelarts": "memUsage", "cms": "MEMORY_UTIL"},
        title="Memory in use, share",
        phrase="memory in use",
        views=Display.CHART | Display.CORE,
    ),
    *(
        _total(
            f"energy.{part}",
            "J",
            text,
            read_unit="W",
            title=title,
            phrase=title[:1].lower() + title[1:] if part == "total" else f"power of {of}",
            views=views,
        )
        for part, title, of, text, views in (
            (
                "total",
                "Power of the job",
                "",
                "Energy of the replica: its parts of the energy that the node measures, added up.",
                Display.FIRST | Display.SUMMARY,
            ),
            ("gpu", "Power of accelerators", "accelerators", "Energy of accelerators.", Display.CHART),
            ("cpu", "Power of CPUs", "CPUs", "Energy of processors.", Display.CHART),
            ("memory", "Power of memory", "memory", "Energy of memory.", Display.CHART),
            (
                "rest",
                "Power of the rest",
                "the rest of the node",
                "Energy of the rest of the node: fans, disks, networks, losses of power supplies.",
                Display.CHART,
            ),
        )
    ),
    _total(
        "network.receive",
        "By",
        "Bytes received over the network.",
        names={"pai-dlc": "NetworkInputRate", "pai-studio": "NetworkInputRate", "cms": "NETWORK_RECEIVE"},
        title="Received",
        phrase="network traffic received",
        column="Net in",
        views=Display.FIRST | Display.RANKS | Display.CORE,
    ),
    _total(
        "network.transmit",
        "By",
        "Bytes sent over the network.",
        names={"pai-dlc": "NetworkOutputRate", "pai-studio": "NetworkOutputRate", "cms": "NETWORK_TRANSMIT"},
        title="Sent",
        phrase="network traffic sent",
        column="Net out",
        views=Display.FIRST | Display.CORE,
    ),
    _total(
        "disk.read",
        "By",
        "Bytes read from storage.",
        names={"pai-dlc": "DiskReadRate", "pai-studio": "DiskReadRate", "cms": "DISK_READ"},
        title="Read",
        phrase="bytes read",
        column="Disk read",
        views=Display.FIRST | Display.CORE,
    ),
    _total(
        "disk.write",
        "By",
        "Bytes written to storage.",
        names={"pai-dlc": "DiskWriteRate", "pai-studio": "DiskWriteRate", "cms": "DISK_WRITE"},
        title="Written",
        phrase="bytes written",
        column="Disk write",
        views=Display.FIRST | Display.CORE,
    ),
    _total("disk.read.operations", "{operation}", "Reads from storage.", title="Reads"),
    _total("disk.write.operations", "{operation}", "Writes to storage.", title="Writes"),
    _total(
        "io.read",
        "By",
        "Bytes that calls to read returned: files, cached or not, network filesystems, and pipes.",
        title="Read by calls",
    ),
    _total(
        "io.write",
        "By",
        "Bytes that calls to write took: files, written back later or not, network filesystems, and pipes.",
        title="Written by calls",
    ),
    _amount("storage.processes", "{process}", "Processes whose working directory is on a filesystem, by mount point."),
    _amount("storage.files.written", "{file}", "Files that are open for writing on a filesystem, by mount point."),
    _amount(
        "storage.ephemeral.usage", "By", "Ephemeral storage in use.", names={"baseten": "ephemeral_storage.usage_bytes"}
    ),
    _amount("storage.ephemeral.limit", "By", "Ephemeral storage allowed.", views=_HIDDEN),
    make_utilization(
        "storage.ephemeral",
        "Ephemeral storage in use over allowed.",
        _R,
        names={"baseten": "ephemeral_storage.utilization"},
    ),
    _metric("storage.cache.usage", "By", "Cache storage in use.", names={"baseten": "cache.usage_bytes"}),
    _metric("storage.cache.limit", "By", "Cache storage allowed.", views=_HIDDEN),
    make_utilization("storage.cache", "Cache storage in use over allowed.", _R, names={"baseten": "cache.utilization"}),
)
