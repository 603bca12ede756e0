"""``/jobs/{job}/phases``: how long a job was queued, started, trained, wrote checkpoints, restarted and ended."""

from jobmeter.model.phase import JobPhases
from jobmeter.query.phases import PhasesQuestion
from jobmeter.server.native.endpoint import PROJECT, CallContext, Endpoint, job_ref

HEADING = "jobs"


@Endpoint(
    "getJobPhases",
    "GET /jobs/{job}/phases",
    "metrics:read",
    details="Phases are queued, prepare (image pull, volumes, prolog), start (until its devices work for longer than a "
    "moment), first_step (until the program reports a step), training, checkpoint, restart, repeat (steps made "
    "before a restart), end, and "
    "unattributed for time of which nothing says what it was. They come from the times of the job and its "
    "attempts, events of the scheduler, device utilization, reported steps, writes beside waiting devices, "
    "and log lines about checkpoints. The spans fill the time from the submission (else the start) to the end "
    "(else now). `unknown` names phases that cannot be separated, and why. A long job is read in at most "
    "720 steps: a phase that is shorter than a step may be part of its neighbour.",
    queries=(PROJECT,),
    by_resource=True,
)
def _phases(context: CallContext) -> JobPhases:
    """The phases of a job and how long each took."""
    return context.ask(PhasesQuestion(job_ref(context)))
