"""Tests of keys in the database."""

import pytest
from msgspec.structs import replace

from jobmeter.errors import ConflictError
from jobmeter.registry.base import Registry
from jobmeter.registry.stored import StoredKey

KEY = StoredKey(
    id="key-1",
    name="ci",
    role="reader",
    project=None,
    token_hash=b"\x00\xff" * 16,
    access_key_id="AK1",
    sealed_secret=b"\x01\x00sealed",
    created=5,
)
OTHER = replace(KEY, id="key-2", project="p", token_hash=b"2" * 32, access_key_id="AK2", created=4)


def test_a_key_is_found_by_each_of_its_halves(registry: Registry) -> None:
    registry.keys.add(KEY)
    registry.keys.add(OTHER)
    assert registry.keys.find_by_token(KEY.token_hash) == KEY
    assert registry.keys.find_by_access_key("AK2") == OTHER
    assert registry.keys.find_by_token(b"none") is None
    assert registry.keys.find_by_access_key("none") is None


def test_keys_are_listed_by_creation(registry: Registry) -> None:
    assert registry.keys.list_keys() == []
    registry.keys.add(KEY)
    registry.keys.add(OTHER)
    assert registry.keys.list_keys() == [OTHER, KEY]
    assert registry.keys.list_keys(frozenset({"p"})) == [OTHER]
    assert registry.keys.list_keys(frozenset()) == []


def test_a_key_is_revoked_once(registry: Registry) -> None:
    registry.keys.add(KEY)
    assert registry.keys.revoke("key-1", 77) is True
    assert registry.keys.revoke("key-1", 78) is False
    assert registry.keys.revoke("none", 79) is False
    assert registry.keys.find_by_token(KEY.token_hash) == replace(KEY, revoked=77)


def test_the_last_use_only_moves_forward(registry: Registry) -> None:
    registry.keys.add(KEY)
    registry.keys.mark_used("key-1", 50)
    registry.keys.mark_used("key-1", 40)
    registry.keys.mark_used("none", 60)
    assert registry.keys.list_keys() == [replace(KEY, last_used=50)]


@pytest.mark.parametrize("twin", [KEY, replace(OTHER, token_hash=KEY.token_hash), replace(OTHER, access_key_id="AK1")])
def test_two_keys_never_share_a_name_or_a_secret(registry: Registry, twin: StoredKey) -> None:
    registry.keys.add(KEY)
    with pytest.raises(ConflictError):
        registry.keys.add(twin)
    assert registry.keys.list_keys() == [KEY]
