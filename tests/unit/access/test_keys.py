"""Tests of creating, listing and revoking keys."""

import re
from pathlib import Path

import pytest
from tests.unit.access.conftest import NOW_MS, FixedClock

from jobmeter.access.authenticate import Credential, hash_token
from jobmeter.access.call import Claim, ClaimKind
from jobmeter.access.keys import create_key, list_keys, revoke_key
from jobmeter.access.links import Link
from jobmeter.access.principal import Principal, Role
from jobmeter.access.signatures import BEARER
from jobmeter.access.vault import Vault
from jobmeter.errors import InvalidRequestError, NotFoundError
from jobmeter.registry.base import Registry
from jobmeter.settings import Settings


def test_a_key_has_secrets_of_full_strength(registry: Registry, vault: Vault, clock: FixedClock) -> None:
    key = create_key(registry, vault, clock, "ci", "writer", "team-a")
    assert re.fullmatch(r"jm_[A-Za-z0-9_-]{43}", key.token)
    assert re.fullmatch(r"JMAK[A-Z2-7]{16}", key.access_key_id)
    assert re.fullmatch(r"[0-9a-f]{64}", key.access_key_secret)
    others = [create_key(registry, vault, clock, "ci", "reader") for _ in range(20)]
    for name in ("id", "token", "access_key_id", "access_key_secret"):
        assert len({getattr(one, name) for one in (key, *others)}) == 21


def test_the_registry_holds_no_secret_in_the_clear(registry: Registry, vault: Vault, clock: FixedClock) -> None:
    key = create_key(registry, vault, clock, "ci", "admin")
    [stored] = registry.keys.list_keys()
    values = (str(getattr(stored, name)) for name in stored.__struct_fields__)
    stored_bytes = "".join(values).encode() + stored.sealed_secret
    for secret in (key.token, key.access_key_secret):
        assert secret.encode() not in stored_bytes
    assert stored.token_hash == hash_token(key.token)
    assert vault.open(stored.sealed_secret, key.access_key_id) == key.access_key_secret
    assert key.token not in repr(key)
    assert key.access_key_secret not in repr(key)


def test_what_has_a_secret_does_not_show_it(tmp_path: Path) -> None:
    secret = "a-secret-0123456789"
    claim = Claim(kind=ClaimKind.TOKEN, value=secret)
    shown = (
        Credential(BEARER, claim, Principal(id="key-1", name="ci", role=Role.READER), secret=secret),
        Link(id="link-1", token=secret, by="ci", created=1, expires=2, last_used=None),
        Settings(data=tmp_path, opentsdb_key=secret),
    )
    for one in shown:
        assert secret not in repr(one)
        assert type(one).__name__ in repr(one)


@pytest.mark.parametrize(
    ("name", "role", "project", "field"),
    [
        ("", "admin", None, "name"),
        ("a b", "admin", None, "name"),
        ("x" * 129, "admin", None, "name"),
        ("a\nb", "admin", None, "name"),
        ("a", "root", None, "role"),
        ("a", "", None, "role"),
        ("a", "admin", "", "project"),
        ("a", "admin", "a_b", "project"),
        ("a", "admin", "x" * 65, "project"),
    ],
)
def test_names_are_checked(
    registry: Registry, vault: Vault, clock: FixedClock, name: str, role: str, project: str | None, field: str
) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        create_key(registry, vault, clock, name, role, project)
    assert refused.value.field == field
    assert registry.keys.list_keys() == []


def test_keys_are_listed_without_secrets_and_ended_once(registry: Registry, vault: Vault, clock: FixedClock) -> None:
    one = create_key(registry, vault, clock, "one", "reader")
    clock.ms += 1
    two = create_key(registry, vault, clock, "two", "admin", "p")
    assert [key.id for key in list_keys(registry)] == [one.id, two.id]
    assert [key.id for key in list_keys(registry, frozenset({"p"}))] == [two.id]
    with pytest.raises(NotFoundError):
        revoke_key(registry, clock, one.id, frozenset({"p"}))
    revoke_key(registry, clock, one.id)
    assert [key.revoked for key in list_keys(registry)] == [NOW_MS + 1, None]
    for unknown in (one.id, "none"):
        with pytest.raises(NotFoundError):
            revoke_key(registry, clock, unknown)
