"""Tags and notes that people put on jobs. The database deletes them with their job."""

from collections.abc import Collection, Iterable, Mapping

import msgspec
import sqlalchemy as sa

from jobmeter.errors import LimitExceededError, NotFoundError
from jobmeter.model.annotation import MOST_NOTES, MOST_TAGS, Annotations, JobNote, JobTag
from jobmeter.registry.database import Database
from jobmeter.registry.schema import jobs, notes, tags
from jobmeter.registry.statements import add_missing, clean_text, iterate_job_chunks


class AnnotationTable:
    """Tags and notes in the database. Every method is one transaction; see ``Registry``."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def read_annotations(self, project: str, job: str) -> Annotations:
        """Return the tags and notes of a job."""
        with self._database.read() as connection:
            return _read(connection, project, job)

    def read_tags(self, names: Iterable[tuple[str, str]]) -> Mapping[tuple[str, str], list[str]]:
        """Return the tags of these jobs, (project, id). Jobs without tags are left out."""
        found: dict[tuple[str, str], list[str]] = {}
        with self._database.read() as connection:
            for project, ids in iterate_job_chunks(names):
                mine = sa.select(tags.c.job, tags.c.tag).where(tags.c.project == project, tags.c.job.in_(ids))
                for row in connection.execute(mine.order_by(tags.c.tag)):
                    found.setdefault((project, row.job), []).append(row.tag)
        return found

    def change_tags(self, project: str, job: str, added: Collection[JobTag], removed: Collection[str]) -> Annotations:
        """Add and remove tags of a job. Return all that the job has then.

        Raises NotFoundError without the job. Raises LimitExceededError, and changes nothing, for too many tags.
        """
        gone = [clean_text(tag) for tag in removed]
        with self._database.write(key=project) as connection:
            _lock(connection, project, job)
            connection.execute(sa.delete(tags).where(_select_job(tags, project, job), tags.c.tag.in_(gone)))
            add_missing(connection, tags, [_row(project, job, one) for one in added])
            _check_count(connection, tags, (project, job), MOST_TAGS)
            return _read(connection, project, job)

    def add_note(self, project: str, job: str, note: JobNote) -> None:
        """Add a note to a job. Raises NotFoundError without the job, LimitExceededError if the job has too many."""
        with self._database.write(key=project) as connection:
            _lock(connection, project, job)
            connection.execute(sa.insert(notes).values(_row(project, job, note)))
            _check_count(connection, notes, (project, job), MOST_NOTES)

    def delete_note(self, project: str, job: str, note: str) -> bool:
        """Delete a note. Return False if there was none."""
        with self._database.write(key=project) as connection:
            gone = sa.delete(notes).where(_select_job(notes, project, job), notes.c.id == clean_text(note))
            return connection.execute(gone).rowcount > 0


def _lock(connection: sa.Connection, project: str, job: str) -> None:
    """Lock the job's row, so that no two writers exceed a limit together; SQLite has one writer at a time.

    Raises NotFoundError: another server may have deleted the job.
    """
    own = sa.select(jobs.c.id).where(jobs.c.project == project, jobs.c.id == job).with_for_update()
    if connection.execute(own).first() is None:
        raise NotFoundError(f"there is no job {job!r}", "job", job)


def _read(connection: sa.Connection, project: str, job: str) -> Annotations:
    tag_rows = connection.execute(sa.select(tags).where(_select_job(tags, project, job)).order_by(tags.c.tag))
    note_rows = connection.execute(
        sa.select(notes).where(_select_job(notes, project, job)).order_by(notes.c.created, notes.c.id)
    )
    return Annotations(
        tags=[msgspec.convert(row, JobTag, from_attributes=True) for row in tag_rows],
        notes=[msgspec.convert(row, JobNote, from_attributes=True) for row in note_rows],
    )


def _check_count(connection: sa.Connection, table: sa.Table, job: tuple[str, str], most: int) -> None:
    count = (
        connection.execute(sa.select(sa.func.count()).select_from(table).where(_select_job(table, *job))).scalar() or 0
    )
    if count > most:
        raise LimitExceededError(f"a job has at most {most} {table.name}: remove some first", table.name)


def _select_job(table: sa.Table, project: str, job: str) -> sa.ColumnElement[bool]:
    return sa.and_(table.c.project == project, table.c.job == job)


def _row(project: str, job: str, one: JobTag | JobNote) -> dict[str, object]:
    values = msgspec.structs.asdict(one)
    texts = {name: clean_text(value) for name, value in values.items() if isinstance(value, str)}
    return {**values, **texts, "project": project, "job": job}
