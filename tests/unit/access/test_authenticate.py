"""Tests of authentication: every valid credential, and every way in which one is invalid."""

import hashlib
import hmac
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest
from msgspec.structs import replace as changed
from tests.unit.access.conftest import NOW_MS, FixedClock

from jobmeter.access.authenticate import OUTAGE_SECONDS, Authenticator
from jobmeter.access.call import Call
from jobmeter.access.keys import CreatedKey, create_key, revoke_key
from jobmeter.access.principal import Principal, Role
from jobmeter.access.share import issue
from jobmeter.access.signatures import ALIBABA, SCHEMES, SHARE, TOKENS
from jobmeter.access.vault import Vault
from jobmeter.errors import ConfigurationError, UnauthenticatedError, UnavailableError
from jobmeter.model.time import format_iso
from jobmeter.registry.base import Registry
from jobmeter.registry.keys import KeyTable
from jobmeter.registry.stored import StoredKey

WITH_SHARE = (*ALIBABA, SHARE)


@pytest.fixture
def key(registry: Registry, vault: Vault, clock: FixedClock) -> CreatedKey:
    return create_key(registry, vault, clock, "ci", "writer", "team-a")


def bearer(token: str, query: str = "") -> Call:
    return Call("GET", "/api/v1/jobs/j/metrics", query, (("authorization", f"Bearer {token}"),))


def signed(key: CreatedKey, *, date: int = NOW_MS, nonce: str = "n1", query: str = "", sts: str = "") -> Call:
    headers = {
        "host": "h", "x-acs-action": "GetJobMetrics", "x-acs-version": "2020-12-03", "x-acs-date": format_iso(date),
        "x-acs-signature-nonce": nonce, "x-acs-content-sha256": hashlib.sha256(b"").hexdigest(),
    } | ({"x-acs-security-token": sts} if sts else {})  # fmt: skip
    names = ";".join(sorted(headers))
    lines = [
        "GET",
        "/api/v1/jobs/j/metrics",
        query,
        *(f"{name}:{headers[name]}" for name in sorted(headers)),
        "",
        names,
    ]
    canonical = "\n".join([*lines, headers["x-acs-content-sha256"]])
    to_sign = f"ACS3-HMAC-SHA256\n{hashlib.sha256(canonical.encode()).hexdigest()}"
    signature = hmac.new(key.access_key_secret.encode(), to_sign.encode(), hashlib.sha256).hexdigest()
    text = f"ACS3-HMAC-SHA256 Credential={key.access_key_id},SignedHeaders={names},Signature={signature}"
    return Call("GET", "/api/v1/jobs/j/metrics", query, (*headers.items(), ("authorization", text)))


def reason(authenticate: Callable[[], Principal]) -> str:
    with pytest.raises(UnauthenticatedError) as refused:
        authenticate()
    return refused.value.reason


def test_one_key_is_one_principal_by_every_scheme(authenticator: Authenticator, key: CreatedKey) -> None:
    expected = Principal(id=key.id, name="ci", role=Role.WRITER, project="team-a")
    places = [
        ("authorization", f"Bearer {key.token}"), ("authorization", f"Api-Key {key.token}"), ("api-key", key.token),
        ("x-auth-token", key.token),
    ]  # fmt: skip
    for place in places:
        assert authenticator.authenticate(Call("GET", "/", "", (place,)), TOKENS) == expected
        assert authenticator.authenticate(Call("GET", "/", "", (place,)), WITH_SHARE) == expected
    assert authenticator.authenticate(signed(key), ALIBABA) == expected


def test_nothing_is_missing(authenticator: Authenticator) -> None:
    assert reason(lambda: authenticator.authenticate(Call("GET", "/", "", ()), SCHEMES)) == "missing"


@pytest.mark.parametrize("token", ["jm_unknown", "x", "jm_" + "A" * 43])
def test_an_unknown_token(authenticator: Authenticator, key: CreatedKey, token: str) -> None:
    assert reason(lambda: authenticator.authenticate(bearer(token), TOKENS)) == "unknown-key"


def test_an_unknown_access_key(authenticator: Authenticator, key: CreatedKey) -> None:
    unknown = signed(changed(key, access_key_id="JMAKUNKNOWN"))
    assert reason(lambda: authenticator.authenticate(unknown, ALIBABA)) == "unknown-key"


def test_a_wrong_signature(authenticator: Authenticator, key: CreatedKey) -> None:
    wrong = signed(changed(key, access_key_secret="0" * 64))
    assert reason(lambda: authenticator.authenticate(wrong, ALIBABA)) == "bad-signature"
    assert authenticator.authenticate(signed(key), ALIBABA).id == key.id, "a refused nonce must stay free"


def test_a_security_token_is_a_signed_header_and_nothing_else(authenticator: Authenticator, key: CreatedKey) -> None:
    assert authenticator.authenticate(signed(key, sts="token"), ALIBABA).id == key.id
    wrong, unknown = (
        changed(key, access_key_secret="0" * 64),
        changed(key, access_key_id="nobody"),
    )
    assert reason(lambda: authenticator.authenticate(signed(wrong, sts="token"), ALIBABA)) == "bad-signature"
    assert reason(lambda: authenticator.authenticate(signed(unknown, sts="token"), ALIBABA)) == "unknown-key"
    call = signed(key, nonce="n2", sts="token")
    headers = tuple((name, "another" if name == "x-acs-security-token" else value) for name, value in call.headers)
    assert reason(lambda: authenticator.authenticate(replace(call, headers=headers), ALIBABA)) == "bad-signature"


@pytest.mark.parametrize(("age_ms", "holds"), [(899_000, True), (901_000, False), (-899_000, True), (-901_000, False)])
def test_the_date_must_be_near(authenticator: Authenticator, key: CreatedKey, age_ms: int, *, holds: bool) -> None:
    call = signed(key, date=NOW_MS - age_ms)
    if holds:
        assert authenticator.authenticate(call, ALIBABA).id == key.id
    else:
        assert reason(lambda: authenticator.authenticate(call, ALIBABA)) == "stale"


def test_a_replayed_request(authenticator: Authenticator, key: CreatedKey, clock: FixedClock) -> None:
    call = signed(key)
    authenticator.authenticate(call, ALIBABA)
    assert reason(lambda: authenticator.authenticate(call, ALIBABA)) == "replayed"
    clock.ms += 800_000
    assert reason(lambda: authenticator.authenticate(call, ALIBABA)) == "replayed"
    clock.ms += 800_000
    assert reason(lambda: authenticator.authenticate(call, ALIBABA)) == "stale"
    assert authenticator.authenticate(signed(key, date=clock.ms, nonce="n2"), ALIBABA).id == key.id


def test_a_bare_token_needs_no_nonce(authenticator: Authenticator, key: CreatedKey, clock: FixedClock) -> None:
    for _ in range(3):
        assert authenticator.authenticate(bearer(key.token), TOKENS).id == key.id
        clock.ms += 10**10


def test_a_revoked_key_is_refused(
    authenticator: Authenticator, registry: Registry, key: CreatedKey, clock: FixedClock
) -> None:
    authenticator.authenticate(bearer(key.token), TOKENS)
    authenticator.authenticate(signed(key), ALIBABA)
    revoke_key(registry, clock, key.id)
    authenticator.forget(key.id)
    assert reason(lambda: authenticator.authenticate(bearer(key.token), TOKENS)) == "revoked"
    assert reason(lambda: authenticator.authenticate(signed(key, nonce="n2"), ALIBABA)) == "revoked"


def test_a_revocation_elsewhere_takes_effect_within_a_second(
    authenticator: Authenticator, registry: Registry, key: CreatedKey, clock: FixedClock
) -> None:
    authenticator.authenticate(bearer(key.token), TOKENS)
    revoke_key(registry, clock, key.id)
    clock.ms += 1000
    assert reason(lambda: authenticator.authenticate(bearer(key.token), TOKENS)) == "revoked"


def test_a_share_token_counts_only_alone(
    authenticator: Authenticator, vault: Vault, key: CreatedKey, clock: FixedClock
) -> None:
    token, _ = issue(vault, "team-a", "j", NOW_MS, 60)
    query = f"Token={token}"
    shared = authenticator.authenticate(Call("GET", "/", query, ()), WITH_SHARE)
    assert (shared.project, shared.job, shared.role) == ("team-a", "j", Role.READER)
    assert authenticator.authenticate(signed(key, query=query), WITH_SHARE).id == key.id
    assert authenticator.authenticate(bearer(key.token, query), (SHARE, *TOKENS)).id == key.id
    wrong = signed(changed(key, access_key_secret="0" * 64), query=query)
    assert reason(lambda: authenticator.authenticate(wrong, WITH_SHARE)) == "bad-signature"
    assert reason(lambda: authenticator.authenticate(bearer("x", query), WITH_SHARE)) == "unknown-key"
    for text, why in (("Basic eDp5", "malformed"), ("ACS3-HMAC-SHA256 nonsense", "malformed"), ("acs x", "malformed")):
        call = Call("GET", "/", query, (("authorization", text),))
        assert reason(lambda call=call: authenticator.authenticate(call, WITH_SHARE)) == why  # type: ignore[misc]
    assert reason(lambda: authenticator.authenticate(Call("GET", "/", query, ()), ALIBABA)) == "missing"
    clock.ms += 60_000
    assert reason(lambda: authenticator.authenticate(Call("GET", "/", query, ()), WITH_SHARE)) == "expired"


def test_a_credential_of_a_scheme_that_is_not_listed_is_refused(authenticator: Authenticator, key: CreatedKey) -> None:
    assert reason(lambda: authenticator.authenticate(signed(key), TOKENS)) == "malformed"


def test_a_token_beside_a_broken_signature_holds(authenticator: Authenticator, key: CreatedKey) -> None:
    call = Call("GET", "/", "", (("authorization", "ACS3-HMAC-SHA256 x"), ("x-auth-token", key.token)))
    assert authenticator.authenticate(call, ALIBABA).id == key.id


def test_only_a_claimed_key_id_is_reported_to_the_audit(authenticator: Authenticator, key: CreatedKey) -> None:
    authenticator.authenticate(signed(key), ALIBABA)
    assert authenticator.find_claimed_key(signed(key), ALIBABA) == key.access_key_id
    assert authenticator.find_claimed_key(bearer("jm_secret"), ALIBABA) == ""
    assert authenticator.find_claimed_key(Call("GET", "/", "", ()), ALIBABA) == ""


def test_a_secret_in_place_of_the_key_id_is_not_written_to_the_audit(
    authenticator: Authenticator, key: CreatedKey
) -> None:
    reasons = set()
    for secret in (key.access_key_secret, key.token, "hunter2"):
        call = signed(changed(key, access_key_id=secret))
        assert reason(lambda call=call: authenticator.authenticate(call, ALIBABA)) == "unknown-key"  # type: ignore[misc]
        reasons.add(authenticator.find_claimed_key(call, ALIBABA))
        assert secret not in authenticator.find_claimed_key(call, ALIBABA)
    assert len(reasons) == 3
    assert all(re.fullmatch("unknown-[0-9a-f]{8}", text) for text in reasons)


def test_the_last_use_is_written_down_now_and_then(
    authenticator: Authenticator, registry: Registry, key: CreatedKey, clock: FixedClock
) -> None:
    used = []
    for _ in range(4):
        authenticator.authenticate(bearer(key.token), TOKENS)
        used.append(registry.keys.list_keys()[0].last_used)
        clock.ms += 300_000
    assert used == [NOW_MS, NOW_MS, NOW_MS + 600_000, NOW_MS + 600_000]


def test_the_last_uses_that_are_remembered_are_bounded(
    authenticator: Authenticator,
    registry: Registry,
    vault: Vault,
    clock: FixedClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("jobmeter.access.authenticate.MOST_KEYS", 3)
    keys = [create_key(registry, vault, clock, f"k{number}", "reader") for number in range(9)]
    counted = Counted(registry.keys)
    stale = Authenticator(counted, vault, clock)  # type: ignore[arg-type]
    for _ in range(2):
        for one in keys:
            stale.authenticate(bearer(one.token), TOKENS)
    assert counted.calls["mark_used"] == 18, "six of nine were forgotten before they came again"
    for one in keys[-3:]:
        stale.authenticate(bearer(one.token), TOKENS)
    assert counted.calls["mark_used"] == 18
    assert [one.last_used for one in registry.keys.list_keys(None)] == [NOW_MS] * 9
    clock.ms += 600_000
    authenticator.authenticate(bearer(keys[0].token), TOKENS)
    assert {one.name: one.last_used for one in registry.keys.list_keys(None)}["k0"] == clock.ms


class Counted:
    """Keys that count reads. Their reads lack the last use at first."""

    def __init__(self, inner: KeyTable) -> None:
        self.inner = inner
        self.calls: Counter[str] = Counter()

    def find_by_token(self, digest: bytes) -> StoredKey | None:
        self.calls["by_token"] += 1
        found = self.inner.find_by_token(digest)
        return found and changed(found, last_used=None)

    def mark_used(self, key_id: str, now_ms: int) -> None:
        self.calls["mark_used"] += 1
        self.inner.mark_used(key_id, now_ms)


class Failing:
    """Keys whose reads or writes fail."""

    def __init__(self, inner: KeyTable, *names: str) -> None:
        self._inner = inner
        self._names = names

    def fail(self, *names: str) -> None:
        self._names = names

    def __getattr__(self, name: str) -> object:
        if name in self._names:
            return self._fail
        return getattr(self._inner, name)

    def _fail(self, *_: object) -> None:
        message = "the registry does not work now"
        raise UnavailableError(message)


def test_a_registry_that_cannot_be_written_still_lets_readers_in(
    registry: Registry, vault: Vault, clock: FixedClock, key: CreatedKey
) -> None:
    reading = Authenticator(Failing(registry.keys, "mark_used"), vault, clock)  # type: ignore[arg-type]
    assert reading.authenticate(bearer(key.token), TOKENS).id == key.id
    broken = Authenticator(Failing(registry.keys, "find_by_token"), vault, clock)  # type: ignore[arg-type]
    with pytest.raises(UnavailableError):
        broken.authenticate(bearer(key.token), TOKENS)


def test_a_lost_key_file_is_reported(registry: Registry, clock: FixedClock, key: CreatedKey) -> None:
    other = Authenticator(registry.keys, Vault(bytes(32)), clock)
    assert other.authenticate(bearer(key.token), TOKENS).id == key.id
    with pytest.raises(ConfigurationError, match="another key file"):
        other.authenticate(signed(key), ALIBABA)


def test_strangers_tokens_are_not_remembered_without_bound(
    registry: Registry, vault: Vault, clock: FixedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobmeter.access.authenticate.MOST_KEYS", 5)
    counted = Counted(registry.keys)
    authenticator = Authenticator(counted, vault, clock)  # type: ignore[arg-type]
    for number in (*range(20), *range(15, 20), *range(5)):
        assert reason(lambda n=number: authenticator.authenticate(bearer(f"jm_{n}"), TOKENS)) == "unknown-key"  # type: ignore[misc]
    assert counted.calls["by_token"] == 25, "the latest five were remembered, and no other"


def test_keys_that_were_confirmed_lately_hold_while_the_registry_is_away(
    registry: Registry, vault: Vault, clock: FixedClock, key: CreatedKey
) -> None:
    failing = Failing(registry.keys)
    cached = Authenticator(failing, vault, clock)  # type: ignore[arg-type]
    other = create_key(registry, vault, clock, "other", "writer", "team-a")
    never = create_key(registry, vault, clock, "never", "writer", "team-a")
    for one in (key, other):
        cached.authenticate(bearer(one.token), TOKENS)
    with pytest.raises(UnauthenticatedError):
        cached.authenticate(bearer("jm_nobody"), TOKENS)
    failing.fail("find_by_token", "find_by_access_key", "mark_used")
    for _ in range(int(OUTAGE_SECONDS)):
        clock.ms += 1000
        assert cached.authenticate(bearer(key.token), TOKENS).id == key.id
    # A key revoked here stays revoked, and a key that the registry did not confirm is refused.
    cached.forget(other.id)
    for token in (other.token, never.token, "jm_nobody"):
        with pytest.raises(UnavailableError):
            cached.authenticate(bearer(token), TOKENS)
    clock.ms += 1000
    with pytest.raises(UnavailableError):
        cached.authenticate(bearer(key.token), TOKENS)
    failing.fail()
    assert cached.authenticate(bearer(key.token), TOKENS).id == key.id
