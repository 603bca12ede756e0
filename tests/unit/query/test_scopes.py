"""Tests of scopes narrower than whole projects: they get answers only to questions that are open to them."""

from typing import Any

import pytest
from tests.support.encoding import question_types
from tests.support.fakes import WRITER, FakeRegistry, SetClock
from tests.support.memory_store import MemoryStore

from jobmeter.access.policy import Grant
from jobmeter.access.principal import Scope
from jobmeter.errors import ForbiddenError
from jobmeter.query.execute import Executor
from jobmeter.query.permitted import check_scope
from jobmeter.server import commands
from jobmeter.settings import Limits

KINDS = question_types()
SERVICES: Any = None
"""Services that a refused command does not reach."""
BY_NAME = {kind.__name__: kind for kind in KINDS}
EVERYTHING, PROJECT = Scope(None), Scope(frozenset({"p"}))
JOB, RESOURCES = Scope(frozenset({"p"}), job="j"), Scope(frozenset({"p"}), grant=Grant((), ()))
WHOLE_SERVER = {
    *("ChangedJobsQuestion", "DroppedEventsQuestion", "DueTasksQuestion", "ProbeQuestion", "StatisticsQuestion"),
    *("ReportedGroupsQuestion", "StoredAlertsQuestion", "StoredSilencesQuestion", "TaskAnswersQuestion"),
    *("AllDamageQuestion", "SchedulersQuestion", "WaitingMessagesQuestion"),
}
SERVER_SECRETS = {"KeysQuestion", "KeyPoliciesQuestion", "LinksQuestion", "UsageQuestion", "ShippersQuestion"}


def is_refused(kind, scope):
    try:
        check_scope(kind, scope)
    except ForbiddenError:
        return True
    return False


def test_every_question_is_answered_in_one_place():
    executor = Executor(MemoryStore(), FakeRegistry(), SetClock(), Limits())
    answered, commanded = set(executor.question_types), set(commands._HANDLERS)
    assert answered | commanded == set(KINDS)
    # The commands query the executor in the scope of a listing, which may differ.
    assert {kind.__name__ for kind in answered & commanded} == {"JobFactsQuestion", "NodeFactsQuestion"}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_question_is_refused_unless_its_type_is_open_to_the_scope(kind):
    assert not is_refused(kind, EVERYTHING)
    assert is_refused(kind, PROJECT) is kind.whole_server
    assert is_refused(kind, JOB) is (not kind.of_job or kind.whole_server)
    assert is_refused(kind, RESOURCES) is (not kind.by_resource or kind.whole_server)


def test_what_is_of_the_server_is_open_to_it_alone():
    assert {name for name, kind in BY_NAME.items() if kind.whole_server} == WHOLE_SERVER
    closed = {name for name, kind in BY_NAME.items() if not (kind.of_job or kind.by_resource)}
    assert closed >= WHOLE_SERVER | SERVER_SECRETS | {"DeleteJob", "RecordJobs", "NewTask", "PodsQuestion"}


def test_an_executor_and_the_commands_check_the_scope():
    executor = Executor(MemoryStore(), FakeRegistry(), SetClock(), Limits())
    with pytest.raises(ForbiddenError):
        executor.run(BY_NAME["KeysQuestion"](), JOB)
    with pytest.raises(ForbiddenError):
        executor.run(BY_NAME["StatisticsQuestion"](), PROJECT)
    with pytest.raises(ForbiddenError):
        executor.answer_from_memory(BY_NAME["KeysQuestion"](), RESOURCES)
    with pytest.raises(ForbiddenError):
        commands.perform(SERVICES, BY_NAME["ServerQuestion"](), WRITER, JOB)
