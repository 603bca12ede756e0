"""A collective did not finish."""

from jobmeter.diagnose.causes import Cause
from jobmeter.diagnose.rule import Weight
from jobmeter.model.finding import Severity

RULE = Cause(
    name="nccl_timeout",
    title="NCCL timeout",
    sees="A collective operation timed out because a rank did not join.",
    advice="Look for the rank that failed first or hangs (jobmeter diagnose JOB --stacks, while the job runs); "
    "if there is none, at the network between the nodes.",
    lines=(
        "Watchdog caught collective operation timeout",
        r"NCCL[^\n]{0,80}(?:timed? ?out|timeout)",
        "ncclRemoteError",
        "ncclSystemError",
        "NCCL communicator was aborted",
        "Timed out waiting .{0,40}(?:recv|send|rank|operation)",
        r"Timeout\(ms\)=\d+\) ran for \d+ milliseconds before timing out",
        r"ran for \d+ milliseconds before timing out",
        "collective operation timeout",
        "taking the entire process down",
        "ncclInternalError|ncclUnhandledCudaError|unhandled system error, NCCL",
        r"NET/(?:IB|Socket|OFI) ?: .{0,120}(?:timed out|failed|error|closed)",
        "(?:recvValue|sendBytes|recvBytes|doWait).{0,60}(?:failed|timeout)",
        "wait timeout after \\d+ ?ms",
        "Heartbeat monitor timed out|HeartbeatMonitor.{0,60}timed out|watchdog got stuck",
        "monitoredBarrier|monitored_barrier.{0,60}(?:timeout|failed)",
        "MPI_ABORT was invoked|MPI_Abort|ORTE daemon.{0,60}(?:failed|lost)",
        "Connection closed by peer",
        "Broken pipe.{0,40}(?:nccl|gloo|store)",
        r"gloo[^\n]{0,80}(?:reset by peer|timed? ?out|closed)",
        r"(?:HCCL|RCCL)[^\n]{0,80}time ?out",
        "DistBackendError",
        "DistNetworkError",
        r"ConnectionResetError: \[Errno 104\]",
    ),
    weight=Weight.CONSEQUENCE,
    severity=Severity.WARNING,
    confidence=0.85,
    running=True,
).rule
