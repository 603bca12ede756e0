"""Tests of page tokens: each opens the position it was made for, and no other."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobmeter.access.page_token import LIFE_MS, seal, unseal
from jobmeter.access.vault import Vault
from jobmeter.errors import InvalidRequestError

VAULT = Vault(bytes(range(32)))
NOW = 1_795_186_800_000


@given(question=st.binary(max_size=40), place=st.binary(max_size=200))
def test_a_token_gives_its_place_until_it_expires(question, place):
    token = seal(VAULT, question, place, NOW)
    assert unseal(VAULT, question, token, NOW + LIFE_MS - 1, "NextToken") == place
    with pytest.raises(InvalidRequestError, match="NextToken has expired"):
        unseal(VAULT, question, token, NOW + LIFE_MS, "NextToken")


@given(data=st.data())
def test_any_other_token_is_refused(data):
    token = seal(VAULT, b"question", b"place", NOW)
    at = data.draw(st.integers(0, len(token) - 1))
    other = data.draw(st.sampled_from("abcXYZ019-_=. \u00fc"))
    changed = data.draw(
        st.one_of(st.just(token[:at] + other + token[at + 1 :]), st.just(token[:at]), st.just(token + other), st.text())
    )
    if changed != token:
        with pytest.raises(InvalidRequestError, match="NextToken is not from this query"):
            unseal(VAULT, b"question", changed, NOW, "NextToken")


@given(question=st.binary(max_size=40))
def test_a_token_of_another_question_or_installation_is_refused(question):
    token = seal(VAULT, b"mine", b"place", NOW)
    for vault, asked in ((VAULT, question), (Vault(bytes(32)), b"mine")):
        if (vault, asked) != (VAULT, b"mine"):
            with pytest.raises(InvalidRequestError):
                unseal(vault, asked, token, NOW, "NextToken")
