"""Tests of the cache of queries: the order of eviction, the end of an entry, the statistics."""

from hypothesis import given
from hypothesis import strategies as st

from jobmeter.store.cache import Cache


def test_the_least_recently_used_goes_first():
    cache = Cache(3 * 600)
    for name in "abc":
        cache.put(name, 1, name.upper(), 100)
    assert cache.get("a", 1) == "A"
    cache.put("d", 1, "D", 100)
    assert [cache.get(name, 1) for name in "abcd"] == ["A", None, "C", "D"]


def test_another_validator_finds_nothing_and_a_new_value_replaces_the_old_one():
    cache = Cache()
    cache.put("a", ("layout", 1), "old", 10)
    assert cache.get("a", ("layout", 2)) is None
    cache.put("a", ("layout", 2), "new", 10)
    assert (cache.get("a", ("layout", 1)), cache.get("a", ("layout", 2))) == (None, "new")
    found = cache.statistics
    assert (found.entries, found.hits, found.misses) == (1, 1, 2)


def test_a_value_larger_than_the_bound_leaves_the_others():
    cache = Cache(2_000)
    cache.put("a", 1, "A", 100)
    cache.put("b", 1, "B", 10_000)
    assert (cache.get("a", 1), cache.get("b", 1)) == ("A", None)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3_000)), max_size=40), st.integers(0, 8_000))
def test_the_bound_holds_after_every_put(puts, bound):
    cache = Cache(bound)
    for name, size in puts:
        cache.put(name, 0, size, size)
        assert 0 <= cache.statistics.bytes <= bound
        assert (cache.statistics.bytes == 0) == (cache.statistics.entries == 0)
