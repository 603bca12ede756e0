"""Tests of the lines of ``jobmeter status``."""

from jobmeter.cli import status
from jobmeter.model.answers import Status


def test_replicas_that_lack_data_are_named():
    facts = list(status.list_facts(Status(replicas={"one:8123": True, "[::1]:9001": False})))
    assert ("replica", "one:8123: ok") in facts
    assert ("replica", "[::1]:9001: not reachable, or not repaired yet") in facts


def test_a_store_without_replicas_names_none():
    assert "replica" not in dict(status.list_facts(Status()))


def test_the_role_among_other_servers_is_named():
    assert ("role", "alone") in list(status.list_facts(Status(role="alone")))
    assert "role" not in dict(status.list_facts(Status()))
