"""Questions for tags and notes of jobs, and the commands that change them."""

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from jobmeter.access.principal import Scope
from jobmeter.model.annotation import Annotations, JobNote, NewNote, TagChange
from jobmeter.model.question import Question
from jobmeter.query.permitted import JobName, filter_permitted_names
from jobmeter.query.request import JobRef
from jobmeter.registry.base import Registry


class AnnotationsQuestion(msgspec.Struct, Question[Annotations], frozen=True):
    """Question for the tags and notes of a job. Raises NotFoundError."""

    by_resource = of_job = True

    ref: JobRef


class TagsQuestion(msgspec.Struct, Question[list[list[str]]], frozen=True):
    """Question for the tags of each of these jobs, (project, id). An invisible job has no tags."""

    by_resource = of_job = True

    jobs: tuple[JobName, ...]


class ChangeTags(msgspec.Struct, Question[Annotations], frozen=True):
    """Command to add and remove tags of a job. Raises NotFoundError, InvalidRequestError or LimitExceededError."""

    ref: JobRef
    change: TagChange


class WriteNote(msgspec.Struct, Question[JobNote], frozen=True):
    """Command to write a note about a job. Raises NotFoundError, InvalidRequestError or LimitExceededError."""

    ref: JobRef
    note: NewNote


class DeleteNote(msgspec.Struct, Question[None], frozen=True):
    """Command to delete a note of a job. Raises NotFoundError for an unknown job or note."""

    ref: JobRef
    note: str


def drop_keys(found: Annotations) -> Annotations:
    """Return tags and notes without the names of keys, for the holder of a link: only administrators list keys."""
    return Annotations(
        tags=[replace(one, by="") for one in found.tags], notes=[replace(one, by="") for one in found.notes]
    )


def list_tags(registry: Registry, question: TagsQuestion, scope: Scope, now_ms: int) -> Sequence[Sequence[str]]:
    """Answer a ``TagsQuestion``."""
    found = registry.annotations.read_tags(filter_permitted_names(registry, question.jobs, scope, now_ms))
    return [found.get(job, []) for job in question.jobs]
