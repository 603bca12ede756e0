"""Flink's Prometheus reporter, https://nightlies.apache.org/flink/flink-docs-stable/docs/deployment/metric_reporters/.

Only metrics that match the catalogue's table in meaning and unit.
"""

from collections.abc import Mapping, Sequence

from jobmeter.ingest.rule import ANY, NOT_NEGATIVE, Rules, RuleTarget, TranslationRule

_TASK = {"task_name": "task", "subtask_index": "subtask"}
_OPERATOR = {**_TASK, "operator_name": "operator"}

_JOB = {
    "lastCheckpointDuration": "lastCheckpointDuration",
    "lastCheckpointSize": "lastCheckpointSize",
    "totalNumberOfCheckpoints": "checkpoints",
}
_TASKS = {
    "checkpointAlignmentTime": "checkpointAlignmentTime",
    "numRecordsInPerSecond": "numRecordsInPerSecond.rate",
    "numRecordsOutPerSecond": "numRecordsOutPerSecond.rate",
    "buffers_inPoolUsage": "buffers.inPoolUsage",
    "buffers_outPoolUsage": "buffers.outPoolUsage",
    "Shuffle_Netty_Input_Buffers_inPoolUsage": "buffers.inPoolUsage",
    "Shuffle_Netty_Output_Buffers_outPoolUsage": "buffers.outPoolUsage",
}
_OPERATORS = {
    "watermarkLatency": "watermarkLatency",
    "lateRecordsDroppedRate": "lateRecordsDroppedRate",
    "numLateRecordsDropped": "numLateRecordsDropped",
}
_PREFIXES: Sequence[tuple[str, Mapping[str, str], Mapping[str, str]]] = (
    ("flink_jobmanager_job_", _JOB, {}),
    ("flink_taskmanager_job_task_", _TASKS, _TASK),
    ("flink_taskmanager_job_task_operator_", _OPERATORS, _OPERATOR),
)

RULES: Rules = {
    prefix + theirs: (
        TranslationRule(
            metric=f"flink.{ours}",
            subject=RuleTarget.FLINK,
            keep=keep,
            # Before the first checkpoint Flink gives -1 for the last one.
            measured=NOT_NEGATIVE if table is _JOB else ANY,
        ),
    )
    for prefix, table, keep in _PREFIXES
    for theirs, ours in table.items()
}
