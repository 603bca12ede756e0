"""Tests of two servers on two shards: a kill of the leader while a shard is away, and its succession on each shard."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack

import pytest

from tests.e2e.test_several_servers import Servers, _end
from tests.e2e.test_shards import ask, job_on, send
from tests.support.clickhouse import NodeProcess, mortal_nodes
from tests.support.postgresql import own_server
from tests.support.processes import ServerProcess
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow
LEADS, FOLLOWS = "this server leads", "this server follows"


class Site(Servers):
    """Servers, and their two shards, with one ClickHouse server each."""

    shards: Sequence[NodeProcess] = ()


@pytest.fixture
def site(tmp_path) -> Iterator[Site]:
    with ExitStack() as stack:
        shards = stack.enter_context(mortal_nodes(2))
        database = stack.enter_context(own_server())
        hosts = ",".join(f"127.0.0.1:{one.own.http}" for one in shards)
        made = Site(tmp_path, f"clickhousedb://{hosts}/jobmeter?shards=2", f"{database.url}/postgres", database, "1")
        made.shards = shards
        for server in made.all:
            stack.callback(_end, server)
        yield made


def rows(server: ServerProcess, job: str) -> int:
    return ask(server, job).body.count(b"\n") - 1


def test_a_leader_that_dies_while_a_shard_is_away_is_succeeded_on_each_shard(site: Site) -> None:
    first, second = site.first, site.start(1)
    here, gone = job_on(0, "here"), job_on(1, "gone")
    for number, server in enumerate((first, second)):
        for job in (here, gone):
            assert send(server, job, number).status == 200
            assert [rows(one, job) for one in (first, second)] == [number + 1] * 2
    assert second.output().count(FOLLOWS) == 2
    with site.shards[1].killed():
        assert send(second, gone, 2).status == 200  # into the leader's journal, and the memory of both
        first.kill()
        wait_until(lambda: send(second, here, 2).status == 200, "the succession on shard 1")
        assert rows(second, here) == 3
        refused = send(second, gone, 3)
        assert refused.status == 503
        assert int(refused.headers["retry-after"]) > 0
        assert ask(second, gone).status == 503
        assert send(second, here, 3).status == 200
    wait_until(lambda: send(second, gone, 4).status == 200, "the succession on shard 2", 60)
    wait_until(lambda: second.output().count(LEADS) == 2, "the log of both successions")
    site.start(0)
    for server in (first, second):
        assert (rows(server, here), rows(server, gone)) in ((4, 4), (4, 5))  # number 3 may be stored
