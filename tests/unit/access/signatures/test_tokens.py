"""Tests of bare tokens and share tokens: their places in a request."""

import pytest

from jobmeter.access.call import Call
from jobmeter.access.signatures import (
    ACS_BEARER,
    API_KEY,
    BASIC,
    BEARER,
    SHARE,
    X_AUTH_TOKEN,
    Claim,
    ClaimKind,
    Scheme,
)
from jobmeter.errors import UnauthenticatedError


def call(*headers: tuple[str, str], query: str = "") -> Call:
    return Call("GET", "/", query, headers)


@pytest.mark.parametrize(
    ("scheme", "sent"),
    [
        (BEARER, call(("authorization", "Bearer t0k"))),
        (BEARER, call(("authorization", "bearer  t0k "))),
        (BEARER, call(("authorization", "Api-Key t0k"))),
        (API_KEY, call(("api-key", "t0k"))),
        (BASIC, call(("authorization", "Basic am9ibWV0ZXI6dDBr"))),
        (BASIC, call(("authorization", "basic  dDBrOg== "))),
        (X_AUTH_TOKEN, call(("x-auth-token", "t0k"))),
        (ACS_BEARER, call(("x-acs-bearer-token", "t0k"), ("x-acs-signature-type", "BEARERTOKEN"))),
        (ACS_BEARER, call(("x-acs-bearer-token", "t0k"), query="SignatureType=BEARERTOKEN")),
        (ACS_BEARER, call(query="BearerToken=t0k&SignatureType=BEARERTOKEN")),
    ],
)
def test_a_token_is_found(scheme: Scheme, sent: Call) -> None:
    assert scheme.claim(sent) == Claim(kind=ClaimKind.TOKEN, value="t0k")
    assert scheme.verify(sent, "")


@pytest.mark.parametrize("scheme", [BASIC, BEARER, API_KEY, X_AUTH_TOKEN, ACS_BEARER, SHARE])
@pytest.mark.parametrize("sent", [call(), call(("authorization", "acs A:b")), call(query="Token=&token=x")])
def test_an_empty_header_is_no_claim(scheme: Scheme, sent: Call) -> None:
    assert scheme.claim(sent) is None


@pytest.mark.parametrize(
    ("scheme", "sent"),
    [
        (BEARER, call(("authorization", "Bearer "))),
        (BEARER, call(("authorization", "Bearer a b"))),
        (BEARER, call(("authorization", "Bearer \x80"))),
        (BASIC, call(("authorization", "Basic "))),
        (BASIC, call(("authorization", "Basic t0k:"))),
        (BASIC, call(("authorization", "Basic Og=="))),
        (BASIC, call(("authorization", "Basic gA=="))),
        (X_AUTH_TOKEN, call(("x-auth-token", "x" * 513))),
        (ACS_BEARER, call(("x-acs-bearer-token", "t0k"))),
        (SHARE, call(query="Token=" + "x" * 1025)),
    ],
)
def test_a_broken_token_is_malformed(scheme: Scheme, sent: Call) -> None:
    with pytest.raises(UnauthenticatedError) as refused:
        scheme.claim(sent)
    assert refused.value.reason == "malformed"


def test_a_share_token_stands_in_its_own_parameter() -> None:
    assert SHARE.claim(call(query="a=1&Token=abc%2B")) == Claim(kind=ClaimKind.SHARE, value="abc+")
    assert SHARE.claim(call(query="token=x")) is None
