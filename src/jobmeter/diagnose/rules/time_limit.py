"""The time limit of a job is over."""

from jobmeter.diagnose.causes import Cause

RULE = Cause(
    name="time_limit",
    title="Time limit",
    sees="The scheduler ended the job at its time limit.",
    advice="Ask for more time, or write checkpoints and go on in another job.",
    lines=(
        "DUE TO TIME LIMIT",
        "time limit (?:was )?(?:reached|exceeded)",
        "exceeded (?:its )?(?:wall ?time|time limit)",
        "walltime.{0,30}exceeded",
        "job killed: walltime",
        "TERM_RUNLIMIT",
        r"JOB \d+ .{0,80}TIME ?LIMIT",
        "(?:maximum|max) (?:run|wall|job) ?time (?:was )?(?:reached|exceeded)",
        "was active on the node longer than specified deadline",
    ),
    reasons=(r"\bTIMEOUT\b", "DeadlineExceeded", "time.?limit", "longer than specified deadline", "TERM_RUNLIMIT"),
).rule
