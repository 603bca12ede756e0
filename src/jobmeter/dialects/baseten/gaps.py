"""Parts of Baseten's training API that are not supported."""

from jobmeter.dialects.base import Gap, GapStatus

_NO_LAUNCHER = "Jobmeter starts no jobs: the system that runs one records it."

GAPS = (
    Gap("`POST .../jobs` (`truss train push`)", _NO_LAUNCHER, GapStatus.NEVER),
    Gap("`POST .../jobs/{training_job_id}/recreate`", _NO_LAUNCHER, GapStatus.NEVER),
    Gap("`GET /v1/blobs/credentials/train`", "Jobmeter stores no uploads.", GapStatus.NEVER),
    Gap(
        "`PATCH .../interactive_sessions/{session_id}`, `POST .../ssh/sign`",
        "Jobmeter opens no sessions on the machines that it measures; `auth_codes` is always empty.",
        GapStatus.NEVER,
    ),
    Gap("`GET` and `PATCH /v1/training/capacity`", "Jobmeter assigns no capacity.", GapStatus.NEVER),
    Gap(
        "`GET /v1/training/jobs/{training_job_id}/queue_context`",
        "The queue belongs to the scheduler that runs the jobs.",
        GapStatus.NEVER,
    ),
    Gap(
        "`POST /v1/teams/{team_id}/training_projects`, `DELETE /v1/training_projects/{training_project_id}`",
        "A project is the project of a key: it has no team, and ends with its jobs.",
        GapStatus.NEVER,
    ),
)
