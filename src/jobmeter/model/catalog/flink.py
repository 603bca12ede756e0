"""Metrics of Alibaba's Flink service, under ``flink.``, in the units of its own table.

Source: the metric table of the operation GetInstanceMetric in the documentation of foas 2018-11-11 (39 rows, 40
distinct names; it spells ``niagara_seek.meam`` that way).
"""

from jobmeter.model.catalog.metric import Aggregate, Display, Metric, MetricScope

_TABLE: tuple[tuple[str, str, str], ...] = (
    ("delay", "ms", "Business delay."),
    ("fetched_delay", "ms", "Time that data stayed in the source."),
    ("no_data_delay", "ms", "Time since the source last had data."),
    ("task_failover.rate", "", "Rate of job failures."),
    ("tps.rate", "", "Records a second into the sources."),
    ("sink.outTps.rate", "", "Records a second out of the sinks."),
    ("parserTps.rate", "", "Records a second out of the sources' parsers."),
    ("inBps.rate", "By", "Bytes a second into the sources."),
    ("parserSkipCount", "", "Share of dirty records in the sources."),
    ("lastCheckpointDuration", "ms", "Duration of the last checkpoint."),
    ("lastCheckpointSize", "By", "Size of the last checkpoint."),
    ("checkpointAlignmentTime", "ns", "Time that a checkpoint's barriers took to align."),
    ("checkpoints", "", "Number of checkpoints."),
    ("rocksdb_get.mean", "ns", "Mean time of a state read."),
    ("rocksdb_put.mean", "ns", "Mean time of a state write."),
    ("niagara_seek.meam", "ns", "Mean time of a seek (Niagara backend)."),
    ("rocksdb_seek.mean", "ns", "Mean time of a seek (RocksDB backend)."),
    ("state.state_size", "By", "Size of the state."),
    ("state.state_newsize", "By", "Size of the state that is new."),
    ("Status.JVM.GarbageCollector.ConcurrentMarkSweep.Time", "ms", "Time in garbage collection (CMS)."),
    ("Status.JVM.GarbageCollector.ConcurrentMarkSweep.Count", "", "Garbage collections (CMS)."),
    ("watermarkLatency", "ms", "Delay of the watermark."),
    ("lateRecordsDroppedRate", "", "Late records dropped a second."),
    ("numLateRecordsDropped", "", "Late records dropped so far."),
    ("input.tt.readLatency", "ms", "Read latency of a TT source."),
    ("numRecordsInPerSecond.rate", "", "Records a second into a task."),
    ("numRecordsOutPerSecond.rate", "", "Records a second out of a task."),
    ("buffers.inPoolUsage", "", "Use of the input queue."),
    ("buffers.outPoolUsage", "", "Use of the output queue."),
    ("taskLatency.sum", "ns", "Time a second spent processing."),
    ("waitOutput.sum", "ns", "Time a second spent waiting for output."),
    ("taskLatency.histogram.mean", "ns", "Mean time of processing."),
    ("waitOutput.histogram.mean", "ns", "Mean time of waiting for output."),
    ("waitInput.histogram.mean", "ns", "Mean time of waiting for input."),
    ("partitionLatency.mean", "ns", "Mean latency of a partition."),
    ("Status.JVM.Memory.Process.rss", "kBy", "Resident memory of the process."),
    ("Status.JVM.CPU.Usage", "", "CPU use of the process."),
    ("Status.JVM.Memory.Heap.Used", "By", "Heap in use."),
    ("Status.JVM.Memory.NonHeap.Used", "By", "Memory in use outside of the heap."),
    ("Status.JVM.Threads.Count", "", "Threads."),
)

_FIRST = frozenset(
    {"delay", "tps.rate", "numRecordsInPerSecond.rate", "numRecordsOutPerSecond.rate", "lastCheckpointDuration"}
)
METRICS: tuple[Metric, ...] = tuple(
    Metric(
        f"flink.{name}",
        unit,
        text,
        MetricScope.REPLICA,
        minimum=None,
        parts=Aggregate.MEAN,
        names={"foas": name},
        views=Display.FIRST if name in _FIRST else Display.CHART,
    )
    for name, unit, text in _TABLE
)
