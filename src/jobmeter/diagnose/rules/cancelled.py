"""Somebody ended the job."""

from jobmeter.diagnose.causes import Cause
from jobmeter.model.finding import Severity
from jobmeter.model.job import JobState

RULE = Cause(
    name="cancelled",
    title="Cancelled",
    sees="The job was stopped by a user or an operator.",
    advice="Nothing is wrong with the job itself.",
    lines=(r"\bCANCELLED AT\b", "^KeyboardInterrupt$"),
    reasons=(r"\bCANCELLED\b", "cancel(?:l?ed)? by", r"\bSIGINT\b", "stopped by", r"\bStopJob\b"),
    exits=frozenset({128 + 2, 128 + 15, 128 + 1, 128 + 3}),
    states=frozenset({JobState.STOPPED}),
    severity=Severity.INFO,
).rule
