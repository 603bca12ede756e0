"""Commands that change tags and notes of jobs."""

import secrets
from collections.abc import Sequence

from jobmeter.access.principal import Principal, Scope
from jobmeter.errors import InvalidRequestError, NotFoundError
from jobmeter.model.annotation import MOST_TAGS, Annotations, JobNote, JobTag, check_author, check_note, check_tag
from jobmeter.query.annotations import ChangeTags, DeleteNote, WriteNote
from jobmeter.query.request import HeadQuestion
from jobmeter.server.services import Services


def change_tags(services: Services, question: ChangeTags, principal: Principal, scope: Scope) -> Annotations:
    """Add and remove tags of a job."""
    change, now_ms = question.change, services.clock.now_ms()
    added, removed = _check_tags(change.add, "add"), _check_tags(change.remove, "remove")
    both = set(added) & set(removed)
    if both:
        raise InvalidRequestError(f"tag {min(both)!r} is to be added and removed: choose one", "remove")
    author = check_author(change.author)
    job = services.executor.run(HeadQuestion(question.ref), scope)
    made = [JobTag(tag=tag, author=author, by=principal.name, created=now_ms) for tag in added]
    return services.registry.annotations.change_tags(job.project, job.id, made, removed)


def _check_tags(tags: Sequence[str], field: str) -> list[str]:
    if len(tags) > MOST_TAGS:
        raise InvalidRequestError(f"name at most {MOST_TAGS} tags, got {len(tags)}", field)
    return list(dict.fromkeys(check_tag(tag, field) for tag in tags))


def write_note(services: Services, question: WriteNote, principal: Principal, scope: Scope) -> JobNote:
    """Write a note about a job."""
    text, time = check_note(question.note)
    author = check_author(question.note.author)
    job = services.executor.run(HeadQuestion(question.ref), scope)
    made = JobNote(
        id=f"note-{secrets.token_hex(8)}",
        text=text,
        time=time,
        author=author,
        by=principal.name,
        created=services.clock.now_ms(),
    )
    services.registry.annotations.add_note(job.project, job.id, made)
    return made


def delete_note(services: Services, question: DeleteNote, _: Principal, scope: Scope) -> None:
    """Delete a note of a job."""
    job = services.executor.run(HeadQuestion(question.ref), scope)
    if not services.registry.annotations.delete_note(job.project, job.id, question.note):
        raise NotFoundError(f"job {job.id} has no note {question.note[:64]!r}", "note", question.note[:64])
