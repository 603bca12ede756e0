"""Tests of log shippers in the registry: their numbers and their progress."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from jobmeter.errors import ConflictError
from jobmeter.model.retention import Retention
from jobmeter.model.shipper import Progress, Shipper
from jobmeter.registry.open import open_registry


def _shipper(**names):
    given = {"id": "ab", "project": "", "resource_group": "rg", "sink_project": "p", "logstore": "l", "created": 1}
    return Shipper(**{**given, **names})


def test_shippers_are_added_listed_and_removed(registry):
    shippers = registry.shippers
    shippers.add(_shipper(created=2))
    shippers.add(_shipper(id="cd", project="p2"))
    assert [one.id for one in shippers.list_shippers()] == ["cd", "ab"]
    with pytest.raises(ConflictError):
        shippers.add(_shipper(id="ef"))
    assert shippers.remove("ab") == _shipper(created=2)
    assert shippers.remove("ab") is None


def test_numbers_are_given_out_once(registry):
    registry.shippers.add(_shipper())
    with ThreadPoolExecutor(4) as threads:
        firsts = list(threads.map(lambda _: registry.shippers.reserve("ab", 5), range(40)))
    assert sorted(firsts) == list(range(1, 200, 5))
    assert registry.shippers.list_shippers()[0].reserved == 200
    assert registry.shippers.reserve("none", 1) is None


def test_only_who_knows_how_far_it_was_writes_down_how_far_it_is(registry):
    shippers = registry.shippers
    shippers.add(_shipper())
    shippers.reserve("ab", 10)
    assert shippers.advance("ab", Progress(before=0, cursor=4, shipped=3, rejected=1), 50)
    assert not shippers.advance("ab", Progress(before=0, cursor=2, shipped=2), 60)
    assert shippers.advance("ab", Progress(before=4, cursor=4, failures=1, error="away", oldest=7), 70)
    (found,) = shippers.list_shippers()
    assert found == _shipper(
        reserved=10, cursor=4, shipped=3, rejected=1, failures=1, error="away", oldest=7, updated=70
    )
    assert found.waiting == 6


def test_a_backup_has_them(registry, tmp_path):
    registry.shippers.add(_shipper())
    registry.backup(tmp_path / "backup")
    other = open_registry(f"sqlite:///{tmp_path / 'other.db'}", Retention())
    other.restore(tmp_path / "backup")
    assert other.shippers.list_shippers() == [_shipper()]
    other.close()
