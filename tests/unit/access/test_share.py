"""Tests of share tokens."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobmeter.access.principal import Role
from jobmeter.access.share import MAX_LIFE_SECONDS, issue, read
from jobmeter.access.vault import Vault
from jobmeter.errors import InvalidRequestError, UnauthenticatedError
from jobmeter.model.series import check_job_id

NOW = 1_795_188_836_000
VAULT = Vault(bytes(range(32)))


def _legal(text: str) -> bool:
    try:
        check_job_id(text)
    except InvalidRequestError:
        return False
    return True


jobs = st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=128).filter(_legal)
projects = st.text("abcXYZ019-", min_size=1, max_size=64)


@given(project=projects, job=jobs, life=st.integers(1, MAX_LIFE_SECONDS))
def test_a_token_opens_its_job_until_it_expires(project: str, job: str, life: int) -> None:
    token, expires = issue(VAULT, project, job, NOW, life)
    assert expires == NOW + life * 1000
    assert all(character.isalnum() or character in "-_" for character in token)
    principal = read(VAULT, token, expires - 1)
    assert (principal.project, principal.job, principal.role) == (project, job, Role.READER)
    with pytest.raises(UnauthenticatedError) as refused:
        read(VAULT, token, expires)
    assert refused.value.reason == "expired"


@given(data=st.data())
def test_any_change_of_a_token_is_refused(data: st.DataObject) -> None:
    token, _ = issue(VAULT, "p", "job", NOW)
    position = data.draw(st.integers(0, len(token) - 1))
    other = data.draw(st.sampled_from("abcXYZ019-_=. \u00fc"))
    changed = data.draw(
        st.sampled_from([token[:position] + other + token[position + 1 :], token[:position], token + other])
    )
    if changed == token:
        return
    with pytest.raises(UnauthenticatedError) as refused:
        read(VAULT, changed, NOW)
    assert refused.value.reason in {"malformed", "bad-signature"}


def test_a_token_of_another_installation_is_refused() -> None:
    token, _ = issue(Vault(bytes(32)), "p", "job", NOW)
    with pytest.raises(UnauthenticatedError) as refused:
        read(VAULT, token, NOW)
    assert refused.value.reason == "bad-signature"


@pytest.mark.parametrize(
    ("project", "job", "life", "field"),
    [
        ("a b", "j", 1, "project"),
        ("p", "a/b", 1, "job_id"),
        ("p", "j", 0, "expires_in"),
        ("p", "j", 31_536_001, "expires_in"),
    ],
)
def test_what_cannot_be_shared_is_named(project: str, job: str, life: int, field: str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        issue(VAULT, project, job, NOW, life)
    assert refused.value.field == field
