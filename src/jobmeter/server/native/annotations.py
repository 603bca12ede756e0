"""``/jobs/{job}/annotations``, ``tags`` and ``notes``: tags and notes that people put on a job."""

from jobmeter.model.annotation import (
    LONGEST_NOTE,
    LONGEST_TAG,
    MOST_NOTES,
    MOST_TAGS,
    Annotations,
    JobNote,
    NewNote,
    TagChange,
)
from jobmeter.query.annotations import AnnotationsQuestion, ChangeTags, DeleteNote, WriteNote
from jobmeter.query.request import HeadQuestion, JobRef
from jobmeter.server.native.bodies import Deleted
from jobmeter.server.native.endpoint import PROJECT, CallContext, Endpoint, make_job_ref


def _job(context: CallContext) -> JobRef:
    """Find the job before the body is read: an unknown job is "not found" with any body."""
    job = context.ask(HeadQuestion(make_job_ref(context)))
    return JobRef(job.id, job.project)


HEADING = "jobs"


@Endpoint(
    "getJobAnnotations",
    "GET /jobs/{job}/annotations",
    "jobs:read",
    details="`by` is the name of the key that wrote, `author` the name that the writer gave. The holder of a link sees "
    "`by` as an empty text.",
    queries=(PROJECT,),
    by_resource=True,
)
def _show(context: CallContext) -> Annotations:
    """Show the tags and notes of a job."""
    return context.ask(AnnotationsQuestion(make_job_ref(context)))


@Endpoint(
    "changeJobTags",
    "POST /jobs/{job}/tags",
    "jobs:write",
    details=f"A job has at most {MOST_TAGS} tags of 1 to {LONGEST_TAG} printable characters, without commas; a tag "
    "begins with neither `+` nor `-`. Returns all tags and notes of the job.",
    queries=(PROJECT,),
    body=TagChange,
    example={"add": ["baseline"], "remove": ["draft"], "author": "lin"},
    lane="control",
)
def _change(context: CallContext) -> Annotations:
    """Add tags to a job, and remove tags."""
    return context.ask(ChangeTags(_job(context), context.decode_body(TagChange)))


@Endpoint(
    "writeJobNote",
    "POST /jobs/{job}/notes",
    "jobs:write",
    details=f"A job has at most {MOST_NOTES} notes of 1 to {LONGEST_NOTE} characters.",
    queries=(PROJECT,),
    body=NewNote,
    example={"text": "Learning rate lowered here.", "time": "2026-11-20T15:00:00Z", "author": "lin"},
    lane="control",
)
def _write(context: CallContext) -> JobNote:
    """Write a note about a job, or about a moment of the job."""
    return context.ask(WriteNote(_job(context), context.decode_body(NewNote)))


@Endpoint("deleteJobNote", "DELETE /jobs/{job}/notes/{note}", "jobs:write", queries=(PROJECT,), lane="control")
def _delete(context: CallContext) -> Deleted:
    """Delete a note of a job."""
    context.ask(DeleteNote(make_job_ref(context), context.path["note"]))
    return Deleted(deleted=True)
