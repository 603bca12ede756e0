"""Tests of registries of several servers on one database: each caches jobs, and none answers from an older record."""

from itertools import count
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jobmeter.errors import UnavailableError
from jobmeter.model.record import JobRecord, Records
from jobmeter.model.retention import Retention
from jobmeter.model.time import MAX_TIME_MS, TimeRange
from jobmeter.registry.open import open_registry

if TYPE_CHECKING:
    from jobmeter.registry.base import Registry

NOW = 1_800_000_000_000
JOBS = ("one", "two")
EVER = TimeRange(0, MAX_TIME_MS)


class Group:
    """Servers that announce changes to each other until they leave."""

    def __init__(self) -> None:
        self.members: list[Member] = []
        self.numbers = count(1)

    def member(self) -> "Member":
        self.members.append(Member(self))
        return self.members[-1]


class Member:
    def __init__(self, group: Group) -> None:
        self.group = group
        self.number: int | None = next(group.numbers)
        self.announced: list[list[str]] = []
        self.drop: Any = None

    def get_membership(self):
        return self.number

    def hear(self, drop):
        self.drop = drop

    def announce(self, jobs):
        self.announced.append(jobs)
        if self.number is None:
            raise UnavailableError("this server has no role")
        for one in self.group.members:
            if one.number is not None and one is not self:
                one.drop(jobs)


class Server:
    def __init__(self, url: str, group: Group) -> None:
        self.registry: Registry = open_registry(url, Retention())
        self.member = group.member()
        self.registry.refresh.join(self.member, alone=False)

    def name(self, job: str) -> str | None:
        """Return the name of a job in an answer."""
        found = self.registry.memory.get_job_head(None, job, NOW) or self.registry.find_job_head(None, job, NOW)
        return found[0].name if found else None


STEP = st.tuples(
    st.sampled_from(["write", "delete", "leave", "join", "return", "look", "look", "look", "die after a commit"]),
    st.integers(0, 2),
    st.sampled_from(JOBS),
)


@pytest.fixture
def servers(postgresql_url):
    group = Group()
    made = [Server(postgresql_url, group) for _ in range(3)]
    yield made
    for one in made:
        one.registry.close()


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(STEP, min_size=5, max_size=25))
def test_each_answer_has_every_change_that_was_acknowledged(servers: list[Server], steps) -> None:
    for number, (what, at, job) in enumerate(steps):
        server = servers[at]
        if what == "leave":
            server.member.number = None
        elif what in {"join", "return"}:
            other = servers[(at + 1) % 3]
            if what == "return" and other.member.number is not None:
                server.member.number = None
                write(other, job, f"name-{number}")
            server.member.number = next(server.member.group.numbers)
        elif what == "look":
            assert server.name(job) == stored(servers, job)
        elif what == "die after a commit":
            before, server.member.number = server.member.number, None
            with pytest.raises(UnavailableError):
                write(server, job, f"unannounced-{number}")
            server.member.number = before
            for one in servers:
                one.registry.refresh.read_unannounced()
                assert one.name(job) == stored(servers, job)
        elif server.member.number is not None:
            if what == "write":
                write(server, job, f"name-{number}")
            else:
                server.registry.delete_job("default", job)


def write(server: Server, job: str, name: str) -> None:
    server.registry.record("default", Records(jobs=[JobRecord(job_id=job, name=name)]), NOW)


def stored(servers: list[Server], job: str) -> str | None:
    """Return the name of a job in the database."""
    found = servers[0].registry.list_job_views([("default", job)], EVER, NOW)
    return found[0].job.name if found else None


def test_a_server_that_comes_back_reads_what_was_changed_meanwhile(servers: list[Server]) -> None:
    first, second = servers[:2]
    write(first, "one", "before")
    assert second.name("one") == "before"
    second.member.number = None
    write(first, "one", "meanwhile")
    second.member.number = next(second.member.group.numbers)
    assert second.name("one") == "meanwhile"
