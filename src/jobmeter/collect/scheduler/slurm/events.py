"""Events of a Slurm job that its state does not show: steps that ran out of memory."""

from collections.abc import Iterator

from jobmeter.collect.scheduler.slurm.slurm_job import Attempt, SlurmJob
from jobmeter.model.event import Level
from jobmeter.model.record import EventRecord

OUT_OF_MEMORY = "OUT_OF_MEMORY"


def oom_steps(attempt: Attempt) -> list[str]:
    """The steps of an attempt in which the kernel ended a process at the limit of memory, in Slurm's order."""
    return [step.id for step in attempt.steps if step.state == OUT_OF_MEMORY]


def job_events(facts: SlurmJob, cluster: str) -> Iterator[EventRecord]:
    """An event for each step that ran out of memory: a script may go on, and its job be COMPLETED or FAILED."""
    for attempt in facts.attempts:
        for step in attempt.steps:
            ended = step.end if step.end is not None else attempt.end
            if step.state != OUT_OF_MEMORY or ended is None:
                continue
            yield EventRecord(
                time=ended * 1000,
                job=str(facts.number),
                cluster=cluster,
                node=step.nodes[0] if len(step.nodes) == 1 else "",
                level=Level.ERROR,
                reason="OOMKilled",
                message=f"Step {step.id} ran out of memory: the kernel ended a process at the limit of memory.",
            )
