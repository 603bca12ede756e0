"""Tests of random server groups on several shards: no server answers from a cached record changed by another one."""

from contextlib import nullcontext
from functools import partial
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from jobmeter.errors import UnavailableError
from jobmeter.store.shards.shard import Shard, ShardSet
from jobmeter.store.shards.use import ShardUse

SHARDS, SERVERS = 3, 3
ONE = st.integers(0, SERVERS - 1), st.integers(0, SHARDS - 1)


class Group:
    """Servers of one shard, which announce changes to each other."""

    def __init__(self):
        self.members: set[int] = set()
        self.uses: dict[int, Use] = {}

    def announce(self, jobs):
        for server in self.members:
            self.uses[server].drop(jobs)


class Use:
    """Use of one shard by one server."""

    is_following = is_direct = False

    def __init__(self, group, server):
        self.announced: list[str] = []
        self.group, self.server, self.number = group, server, 0
        group.uses[server] = self
        self.drop = lambda _: None
        self.changed = lambda _: None
        self.memory = None

    @property
    def is_member(self):
        return self.server in self.group.members

    def watch(self, changed):
        self.changed = changed
        changed(False)

    def mirror(self, memory):
        self.memory = memory
        memory.trust(trusted=self.is_member)

    def hear(self, drop):
        self.drop = drop

    def get_membership(self):
        return self.number if self.is_member else None

    def get_valid_until(self):
        return 10.0 if self.is_member else float("-inf")

    def announce(self, jobs):
        if not (self.is_member or self.is_direct):
            raise UnavailableError("no role")
        self.announced += jobs
        self.group.announce(jobs)

    def check(self):
        if not self.is_member:
            raise UnavailableError("no role")

    def forward(self, batches, retention):
        return batches

    def confirm(self):
        return nullcontext()


class Engine:
    def __init__(self, use):
        self.engine_use = use

    def is_answering(self):
        return True

    def close(self):
        pass


def open_engine(use: Use) -> Any:
    return Engine(use)


class Memory:
    is_trusted = False

    def trust(self, *, trusted):
        self.is_trusted = trusted

    def renew(self):
        pass

    def append_all(self, batches, retention=None):
        pass

    def apply(self, batches, immutable_ms):
        pass

    def invalidate(self, jobs, *, dropped):
        pass

    def roll_up(self, until_ms):
        return 0

    def delete_job(self, job):
        pass


class Server:
    """Server that caches the name of a job, and reads it again after it has joined the groups."""

    def __init__(self, number, groups):
        self.uses = [Use(group, number) for group in groups]
        self.shards = [Shard(one + 1, SHARDS, partial(open_engine, use)) for one, use in enumerate(self.uses)]
        self.use = ShardUse(ShardSet(self.shards, SHARDS))
        self.memory = Memory()
        self.use.mirror(self.memory)
        self.use.hear(lambda _: self.forget())
        self.cached = self.read_in = None

    def forget(self):
        self.cached = None


class RecordGroups(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.groups = [Group() for _ in range(SHARDS)]
        self.servers = [Server(number, self.groups) for number in range(SERVERS)]
        self.name = 0

    def teardown(self):
        for server in self.servers:
            for shard in server.shards:
                shard.close()

    @rule(server=ONE[0], shard=ONE[1])
    def open(self, server, shard):
        one = self.servers[server]
        if one.shards[shard].engine is None:
            one.shards[shard].open()
            one.use.add(one.shards[shard])

    @rule(server=ONE[0], shard=ONE[1], joins=st.booleans())
    def change_role(self, server, shard, joins):
        """Make servers join or leave the group of a shard that they have opened."""
        one = self.servers[server]
        if one.shards[shard].engine is None:
            return
        use = one.uses[shard]
        use.number += 1
        (use.group.members.add if joins else use.group.members.discard)(server)
        use.memory.trust(trusted=joins)
        use.changed(joins and len(use.group.members) == 1)

    @rule(server=ONE[0])
    def rename(self, server):
        """Commit a name, drop the server's own record, and acknowledge once the change is announced."""
        self.name += 1
        self.servers[server].forget()
        try:
            self.servers[server].use.announce(["job"])
        except UnavailableError:
            # Not acknowledged: the servers read such changes in the background.
            for one in self.servers:
                one.forget()

    @rule(server=ONE[0])
    def ask(self, server):
        one = self.servers[server]
        member = one.use.get_membership()
        if member is None or member != one.read_in:
            one.forget()
            one.read_in = member
        if one.cached is None:
            one.cached = self.name
        assert one.cached == self.name

    @invariant()
    def counts(self):
        for one in self.servers:
            opened = [use for shard, use in zip(one.shards, one.uses, strict=True) if shard.engine is not None]
            every = bool(opened) and all(use.is_member for use in opened)
            assert one.memory.is_trusted == every
            assert (one.use.get_valid_until() == 10.0) == every
            assert (one.use.get_membership() is not None) == (every and len(opened) == SHARDS)


TestRecordGroups = RecordGroups.TestCase
TestRecordGroups.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


def test_a_server_is_alone_once_it_is_alone_on_all_shards():
    server = Server(0, [Group() for _ in range(SHARDS)])
    heard: list[bool] = []
    server.use.watch(heard.append)
    for shard, use in zip(server.shards, server.uses, strict=True):
        shard.open()
        server.use.add(shard)
        assert heard[-1] is False
        with pytest.raises(UnavailableError) if shard is server.shards[0] else nullcontext():
            server.use.check()
        use.group.members.add(0)
        use.changed(True)
        server.use.check()
    assert heard == [False, True]
    server.uses[1].changed(False)
    assert heard == [False, True, False]
    for shard in server.shards:
        shard.close()


def test_a_server_that_uses_shards_directly_announces_changes_on_each():
    server = Server(0, [Group() for _ in range(SHARDS)])
    for shard, use in zip(server.shards, server.uses, strict=True):
        use.is_direct = True
        shard.open()
        server.use.add(shard)
    server.use.announce(["job"])
    assert [use.announced for use in server.uses] == [["job"]] * SHARDS
    for shard in server.shards:
        shard.close()
