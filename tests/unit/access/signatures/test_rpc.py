"""Tests of RPC signatures against an independent signer."""

import base64
import hashlib
import hmac
from dataclasses import replace
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from jobmeter.access.call import Call
from jobmeter.access.signatures import RPC
from jobmeter.errors import UnauthenticatedError

STAMP = "2026-11-20T15:33:58Z"
STAMP_MS = 1_795_188_838_000
FORM = "application/x-www-form-urlencoded"
HASHES = {"HMAC-SHA1": hashlib.sha1, "HMAC-SHA256": hashlib.sha256}


def escaped(text: str) -> str:
    return quote(text, safe="-_.~")


def signed(
    query: dict[str, str], form: dict[str, str], secret: str, *, method: str = "POST", algorithm: str = "HMAC-SHA1"
) -> Call:
    """Sign as the vendor's page describes, without code of the product."""
    own = {
        "Action": "DescribeMetricList",
        "Version": "2019-01-01",
        "Format": "json",
        "AccessKeyId": "AK",
        "Timestamp": STAMP,
        "SignatureNonce": "n-1",
        "SignatureMethod": algorithm,
        "SignatureVersion": "1.0",
    }
    sent = {**query, **own}
    canonical = "&".join(f"{escaped(name)}={escaped(value)}" for name, value in sorted({**sent, **form}.items()))
    text = f"{method}&%2F&{escaped(canonical)}"
    digest = hmac.new(f"{secret}&".encode(), text.encode(), HASHES[algorithm]).digest()
    pairs = {**sent, "Signature": base64.b64encode(digest).decode()}
    headers = [("host", "h"), ("x-acs-action", own["Action"]), ("x-acs-version", own["Version"])]
    if form:
        headers.append(("content-type", FORM))
    body = "&".join(f"{quote_plus(name)}={quote_plus(value)}" for name, value in form.items())
    wire = "&".join(f"{quote_plus(name)}={quote_plus(value)}" for name, value in pairs.items())
    return Call(method, "/", wire, tuple(headers), body.encode())


texts = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=10)
parts = st.fixed_dictionaries(
    {
        "query": st.dictionaries(st.text("abcXYZ.019_", min_size=1, max_size=8), texts, max_size=4),
        "form": st.dictionaries(st.text("defUVW.019_", min_size=1, max_size=8).map("F".__add__), texts, max_size=4),
        "secret": st.text("abcdef0123456789", min_size=1, max_size=40),
        "method": st.sampled_from(["GET", "POST"]),
        "algorithm": st.sampled_from(sorted(HASHES)),
    }
)


def verifies(call: Call, secret: str) -> bool:
    try:
        verified = RPC.claim(call) is not None and RPC.verify(call, secret)
    except UnauthenticatedError:
        return False
    # The check before the body's arrival must never refuse a call that is valid with its body.
    assert RPC.verify_headers(replace(call, body=b""), secret) or not verified
    return verified


@given(parts=parts)
def test_signatures_of_a_client_are_valid(parts: dict[str, object]) -> None:
    call = signed(**parts)  # type: ignore[arg-type]
    claim = RPC.claim(call)
    assert claim is not None
    assert (claim.value, claim.date_ms, claim.nonce) == ("AK", STAMP_MS, "n-1")
    assert verifies(call, str(parts["secret"]))


@given(parts=parts, data=st.data())
def test_any_single_change_is_refused(parts: dict[str, object], data: st.DataObject) -> None:
    call, key = signed(**parts), str(parts["secret"])  # type: ignore[arg-type]
    what = data.draw(st.sampled_from(["method", "path", "query", "value", "header", "body", "secret", "signature"]))
    changed = call
    if what == "method":
        changed = replace(call, method="DELETE")
    elif what == "path":
        changed = replace(call, raw_path=data.draw(st.sampled_from(["//", "/x", "/%2F", ""])))
    elif what == "query":
        changed = replace(call, query=f"{call.query}&{data.draw(st.sampled_from(['New=1', 'Action=x', 'New=']))}")
    elif what == "value":
        name = data.draw(st.sampled_from(["AccessKeyId=AK", "SignatureNonce=n-1", "Version=2019", "Format=json"]))
        changed = replace(call, query=call.query.replace(name, name + "1"))
    elif what == "header":
        name = data.draw(st.sampled_from(["x-acs-action", "x-acs-version"]))
        changed = replace(call, headers=tuple((n, v + "1" if n == name else v) for n, v in call.headers))
    elif what == "body":
        assume(parts["form"])
        changed = replace(call, body=call.body + data.draw(st.sampled_from([b"1", b"&More=1"])))
    elif what == "secret":
        key += "1"
    else:
        changed = replace(call, query=call.query.replace("Signature=", "Signature=A"))
    assert not verifies(changed, key), what


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (("AccessKeyId=AK", "AccessKeyId="), "incomplete-signature"),
        (("&SignatureNonce=n-1", ""), "incomplete-signature"),
        (("Timestamp=2026-11-20T15", "Timestamp=yesterday"), "malformed"),
        (("SignatureMethod=HMAC-SHA1", "SignatureMethod=HMAC-MD5"), "malformed"),
        (("SignatureNonce=n-1", "SignatureNonce=" + "n" * 257), "malformed"),
        (("AccessKeyId=AK", "AccessKeyId=" + "A" * 129), "malformed"),
        (("Action=Describe", "Action=x&Action=Describe"), "malformed"),
        (("Action=DescribeMetricList", "Action=DeleteJob"), "malformed"),
    ],
)
def test_a_broken_claim_says_why(change: tuple[str, str], reason: str) -> None:
    call = signed({}, {}, "s")
    broken = replace(call, query=call.query.replace(*change))
    assert broken.query != call.query
    with pytest.raises(UnauthenticatedError) as refused:
        RPC.claim(broken)
    assert refused.value.reason == reason


def test_a_security_token_in_a_header_is_the_one_that_was_signed() -> None:
    call = signed({"SecurityToken": "sts"}, {}, "s")
    same = replace(call, headers=(*call.headers, ("x-acs-security-token", "sts")))
    assert RPC.claim(same) is not None
    for unsigned in (
        signed({}, {}, "s"),
        replace(call, query=call.query.replace("SecurityToken=sts", "SecurityToken=x")),
    ):
        with pytest.raises(UnauthenticatedError) as refused:
            RPC.claim(replace(unsigned, headers=(*unsigned.headers, ("x-acs-security-token", "sts"))))
        assert refused.value.reason == "malformed"


@pytest.mark.parametrize(
    "call",
    [
        Call("GET", "/", "Action=A&Version=V", ()),
        Call("GET", "/", "Signature=x&SignatureType=BEARERTOKEN&BearerToken=t", ()),
        Call("GET", "/api/v1/jobs", "Signature=x", ()),
        Call("GET", "/", "Signature=x", (("authorization", "Bearer t"),)),
    ],
)
def test_other_credentials_are_no_claim(call: Call) -> None:
    assert RPC.claim(call) is None
