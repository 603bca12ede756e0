"""Diagnostic tasks and the answers of agents, in the database."""

from collections.abc import Iterable

import msgspec
import sqlalchemy as sa

from jobmeter.errors import InvalidRequestError, ThrottledError
from jobmeter.model.task import MOST_OPEN, DiagnosticTask, NodeAnswer, TaskFilter, TaskPage, TaskState, TaskType
from jobmeter.registry.database import POSTGRESQL, Database
from jobmeter.registry.schema import diagnostic_answers, diagnostic_tasks
from jobmeter.registry.statements import insert, match_names

KEEP = 10_000
"""Most tasks stored for a project; the oldest finished ones are deleted."""
_OPEN = (TaskState.WAITING.value, TaskState.RUNNING.value)
_task, _answer = diagnostic_tasks.c, diagnostic_answers.c


class TaskTable:
    """Diagnostic tasks. Every method is one transaction and may be called from any thread; see ``Registry``."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, task: DiagnosticTask) -> None:
        """Store a new task and its requests to agents.

        Raises ThrottledError if its project has too many unfinished tasks.
        """
        with self._database.write(key=task.project) as connection:
            own = _task.project == task.project
            count = sa.select(sa.func.count()).select_from(diagnostic_tasks).where(own, _task.state.in_(_OPEN))
            if (connection.scalar(count) or 0) >= MOST_OPEN:
                raise ThrottledError(f"project {task.project} has {MOST_OPEN} diagnostic tasks under way", 5_000)
            connection.execute(sa.insert(diagnostic_tasks).values(_row(task)))
            requests = [
                {"task": task.id, "project": task.project, "cluster": task.cluster, "node": node,
                 "deadline": task.deadline}
                for node in task.nodes
            ]  # fmt: skip
            if requests:
                connection.execute(insert(connection, diagnostic_answers).on_conflict_do_nothing(), requests)
            self._trim(connection, task.project)

    def save(self, task: DiagnosticTask) -> None:
        """Replace a stored task."""
        with self._database.write(key=task.project) as connection:
            connection.execute(sa.update(diagnostic_tasks).where(_task.id == task.id).values(_row(task)))

    def find(self, question: TaskFilter) -> TaskPage:
        """Return one page of tasks, newest first. Raises InvalidRequestError (``after``) for an unknown cursor."""
        with self._database.read() as connection:
            conditions = _conditions(connection, question)
            count = sa.select(sa.func.count()).select_from(diagnostic_tasks).where(*conditions)
            total = connection.scalar(count) or 0
            if question.after:
                conditions.append(_select_after(connection, question))
            page = sa.select(_task.body).where(*conditions).order_by(_task.created.desc(), _task.id.desc())
            texts = connection.scalars(page.limit(question.limit)).all()
        return TaskPage([msgspec.json.decode(text, type=DiagnosticTask) for text in texts], total)

    def list_due(self, now_ms: int, limit: int) -> list[DiagnosticTask]:
        """Return open tasks that can continue now: the oldest one of each project, then the next one of each.

        A running task waits for the answers of its nodes, or for its deadline.
        """
        is_pending = (_answer.task == _task.id, _answer.answer.is_(None), _answer.deadline > now_ms)
        is_due = sa.or_(_task.state == TaskState.WAITING.value, ~sa.exists().where(*is_pending))
        place = sa.func.row_number().over(partition_by=_task.project, order_by=(_task.created, _task.id))
        found = sa.select(_task.id, place.label("place")).where(_task.state.in_(_OPEN), is_due).subquery()
        question = sa.select(_task.body).join(found, found.c.id == _task.id)
        question = question.order_by(found.c.place, _task.created, _task.id).limit(limit)
        with self._database.read() as connection:
            texts = connection.scalars(question).all()
        return [msgspec.json.decode(text, type=DiagnosticTask) for text in texts]

    def list_waiting_for(
        self, project: str, cluster: str, node: str, now_ms: int, limit: int, kind: TaskType = TaskType.NODE
    ) -> list[DiagnosticTask]:
        """Return the tasks that wait for an answer of that node.

        A task without a cluster is for nodes of all clusters.
        """
        own = (_answer.project == project, _answer.node == node, _answer.cluster.in_(["", cluster]))
        waits = (_answer.answer.is_(None), _answer.deadline > now_ms, _task.type == kind.value)
        question = sa.select(_task.body).join(diagnostic_answers, _answer.task == _task.id).where(*own, *waits)
        with self._database.read() as connection:
            texts = connection.scalars(question.order_by(_answer.task).limit(limit)).all()
        return [msgspec.json.decode(text, type=DiagnosticTask) for text in texts]

    def answer(self, project: str, task: str, answer: NodeAnswer, kinds: Iterable[TaskType] = (TaskType.NODE,)) -> bool:
        """Store a node's first answer to a task of these types. Return False if none is requested now."""
        own = (_answer.project == project, _answer.task == task, _answer.node == answer.node)
        is_kind = sa.exists().where(_task.id == task, _task.type.in_([kind.value for kind in kinds]))
        open_ = (_answer.answer.is_(None), _answer.deadline > (answer.time or 0), is_kind)
        text = msgspec.json.encode(answer).decode()
        with self._database.write(key=project) as connection:
            given = sa.update(diagnostic_answers).where(*own, *open_).values(answer=text)
            return connection.execute(given).rowcount > 0

    def list_answers(self, task: str) -> list[NodeAnswer]:
        """Return the answers of all nodes. A node that has not answered has no time."""
        question = sa.select(_answer.node, _answer.cluster, _answer.answer).where(_answer.task == task)
        with self._database.read() as connection:
            rows = connection.execute(question.order_by(_answer.node)).all()
        return [
            msgspec.json.decode(row.answer, type=NodeAnswer)
            if row.answer
            else NodeAnswer(node=row.node, cluster=row.cluster)
            for row in rows
        ]

    @staticmethod
    def _trim(connection: sa.Connection, project: str) -> None:
        own = (_task.project == project, _task.state.not_in(_OPEN))
        newest = sa.select(_task.id).where(*own).order_by(_task.created.desc(), _task.id.desc())
        old = list(connection.scalars(newest.offset(KEEP).limit(MOST_OPEN)))
        if old:
            connection.execute(sa.delete(diagnostic_answers).where(_answer.task.in_(old)))
            connection.execute(sa.delete(diagnostic_tasks).where(_task.id.in_(old)))


def _row(task: DiagnosticTask) -> dict[str, object]:
    return {
        "id": task.id,
        "project": task.project,
        "type": task.type.value,
        "label": task.label,
        "state": task.state.value,
        "resource_group": task.resource_group,
        "created": task.created,
        "body": msgspec.json.encode(task).decode(),
    }


def _conditions(connection: sa.Connection, question: TaskFilter) -> list[sa.ColumnElement[bool]]:
    conditions = [
        match_names(_task.project, question.projects),
        match_names(_task.id, question.ids or None),
        match_names(_task.type, question.types or None),
        match_names(_task.state, question.states or None),
        match_names(_task.resource_group, question.resource_groups or None),
    ]
    if question.labels:
        word = sa.case((_task.label == "", _task.type), else_=_task.label)
        conditions.append(word.in_(question.labels))
    if question.clusters:
        conditions.append(_select_named(connection, "cluster").in_(question.clusters))
    if question.job:
        conditions.append(_select_named(connection, "job") == question.job)
    if question.nodes:
        # Every node of a task has a row there, even if its agent gets no request.
        conditions.append(_task.id.in_(sa.select(_answer.task).where(_answer.node.in_(question.nodes))))
    return conditions


def _select_named(connection: sa.Connection, field: str) -> sa.ColumnElement[str]:
    """Return the cluster or job that a task names, which is in its JSON alone; empty for none."""
    if connection.dialect.name == POSTGRESQL:
        named = sa.cast(_task.body, sa.JSON)[field].as_string()
    else:
        named = sa.func.json_extract(_task.body, f"$.{field}")
    return sa.func.coalesce(named, "")


def _select_after(connection: sa.Connection, question: TaskFilter) -> sa.ColumnElement[bool]:
    own = sa.select(_task.created, _task.id).where(
        _task.id == question.after, match_names(_task.project, question.projects)
    )
    row = connection.execute(own).one_or_none()
    if row is None:
        raise InvalidRequestError("the diagnostic task of this id no longer exists: start from the first page", "after")
    return sa.tuple_(_task.created, _task.id) < sa.tuple_(sa.literal(row.created), sa.literal(row.id))
