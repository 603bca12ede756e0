"""ListTrainingJobStages: the stages of a job, from the changes of its state.

https://support.huaweicloud.com/intl/en-us/api-modelarts/ListTrainingJobStages.html
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from jobmeter.dialects.base import Steps, ask
from jobmeter.dialects.modelarts.answers import answer, format_time
from jobmeter.dialects.modelarts.job_body import find_start
from jobmeter.dialects.modelarts.requests import JOB_PATH, ModelArtsJobRequest, operation
from jobmeter.model.event import Event, EventFilter, EventSource
from jobmeter.model.job import Job, JobState
from jobmeter.query.defaults import find_end
from jobmeter.query.request import JobQuestion

MAX_CHANGES = 1000
_ORDER = {"scheduling": 1, "running": 3, "end": 4}
_ENGLISH = {"scheduling": "The job waits.", "running": "The job runs.", "end": "The job has ended"}
_CHINESE = {"scheduling": "作业调度", "running": "作业运行", "end": "作业结束"}


class _Stage(msgspec.Struct):
    name: str
    start_ms: int
    end_ms: int | None = None
    result: str = ""


class _Run(msgspec.Struct):
    stages: list[_Stage] = msgspec.field(default_factory=list)


@operation(f"GET {JOB_PATH}/stages", "jobs:read", by_resource=True)
class ListTrainingJobStages(ModelArtsJobRequest, frozen=True, kw_only=True):
    """`{total_count, running_records: [{record_order, stages}]}`: the stages `scheduling`, `running` and `end`.

    They follow from the changes of the job's state, with a record for each start. Jobmeter gets no reports of
    `preparing`, nor of stages within a stage.
    """

    def _steps(self) -> Steps:
        view = yield from ask(JobQuestion(self.ref))
        page = yield from ask(
            EventFilter(
                projects=frozenset({view.job.project}),
                jobs=(view.job.id,),
                sources=frozenset({EventSource.STATE}),
                limit=MAX_CHANGES,
            )
        )
        runs = _runs(_changes(view.job, page.events))
        records = [
            {"record_order": number, "stages": [_stage(view.job.id, stage) for stage in run.stages]}
            for number, run in enumerate(runs, 1)
        ]
        return answer({"total_count": len(records), "running_records": records}, self.context)


def _changes(job: Job, events: Sequence[Event]) -> list[tuple[int, JobState]]:
    """Return the changes of the job's state with their times, from its record if events are missing."""
    states = {state.value: state for state in JobState}
    changes = [(event.time, states[event.reason]) for event in events if not event.replica and event.reason in states]
    start, end = find_start(job), find_end(job)
    present = {state for _, state in changes}
    recorded = [(job.created, JobState.QUEUED), (start, JobState.RUNNING), (end, job.state)]
    changes += [(time, state) for time, state in recorded if time is not None and state not in present]
    rank = {JobState.QUEUED: 0, JobState.RUNNING: 1}
    return sorted(changes, key=lambda change: (change[0], rank.get(change[1], 2)))


def _runs(changes: Sequence[tuple[int, JobState]]) -> list[_Run]:
    runs: list[_Run] = []
    for time_ms, state in changes:
        name = {JobState.QUEUED: "scheduling", JobState.RUNNING: "running"}.get(state, "end")
        last = runs[-1].stages[-1] if runs else None
        if last is not None and last.name == name:
            continue
        if last is not None and last.end_ms is None:
            last.end_ms = time_ms
        if last is None or _ORDER[name] < _ORDER[last.name]:
            runs.append(_Run())
        ended = time_ms if name == "end" else None
        runs[-1].stages.append(_Stage(name, time_ms, ended, state.value if name == "end" else ""))
    return runs


def _stage(job: str, stage: _Stage) -> dict[str, Any]:
    end = {} if stage.end_ms is None else {"end_time": format_time(stage.end_ms)}
    result = f": {stage.result}." if stage.result else ""
    return {
        "job_id": job,
        "name": stage.name,
        "en_message": _ENGLISH[stage.name] + result,
        "zh_message": _CHINESE[stage.name],
        "start_time": format_time(stage.start_ms),
        **end,
        "stage_order": _ORDER[stage.name],
        "sub_stages": [],
    }
