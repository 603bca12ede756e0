"""The job was preempted."""

from jobmeter.diagnose.causes import Cause

RULE = Cause(
    name="preempted",
    title="Preempted",
    sees="The scheduler or the provider took the machine back.",
    advice="Write checkpoints often enough and let the scheduler queue the job again.",
    lines=(
        "DUE TO PREEMPTION",
        r"\bpreempt(?:ed|ion)\b.{0,60}(?:node|job|instance|by|notice)",
        "spot (?:instance )?(?:interruption|termination)",
        "instance.{0,30}(?:will be|is being|was) reclaimed",
        "(?:ec2|spot|preemptible).{0,60}(?:interrupt|reclaim|terminat)",
        r"\bpreempt(?:ed|ion)\b.{0,20}(?:$|signal|received|requeue)",
        r"\bJOB \d+ .{0,80}(?:PREEMPTION|PREEMPTED)",
        "TaintManagerEviction|terminated by the preemption",
    ),
    reasons=(
        "preempt",
        # A pod that is evicted for its disk is the case of fs_full.
        r"\bEvict(?:ed|ion)\b(?!.{0,200}(?:ephemeral|DiskPressure))",
        "TaintManager",
        "DisruptionTarget",
        "TerminationByKubelet",
        "SpotInterruption",
        "reclaimed",
    ),
).rule
