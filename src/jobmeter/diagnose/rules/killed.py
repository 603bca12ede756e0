"""A process was killed."""

from jobmeter.diagnose.causes import Cause
from jobmeter.diagnose.rule import Weight
from jobmeter.model.job import JobState

RULE = Cause(
    name="killed",
    title="Killed",
    sees="A replica ended by SIGKILL, or by SIGTERM without a request to stop the job, for no visible reason.",
    advice="Ask who did it: the kernel's log (memory), the scheduler's log, other users.",
    exits=frozenset({128 + 9, 128 + 15}),
    states=frozenset({JobState.FAILED, JobState.RUNNING}),
    weight=Weight.SIGNAL,
    confidence=0.8,
).rule
