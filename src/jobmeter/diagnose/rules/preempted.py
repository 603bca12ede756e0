"""The job had to give way."""

from jobmeter.diagnose.causes import Cause

RULE = Cause(
    name="preempted",
    sees="The scheduler or the provider took the machine back.",
    advice="Write checkpoints often enough and let the scheduler queue the job again.",
    lines=(
        "DUE TO PREEMPTION",
        r"\bpreempt(?:ed|ion)\b.{0,60}(?:node|job|instance|by|notice)",
        "spot (?:instance )?(?:interruption|termination)",
        "instance.{0,30}will be reclaimed",
    ),
    reasons=("preempt", r"\bEvicted\b", "TerminationByKubelet", "SpotInterruption", "reclaimed"),
).rule
