"""Tests of ROA signatures against an independent signer, in both forms in use."""

import base64
import hashlib
import hmac
from dataclasses import replace
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from jobmeter.access.call import Call
from jobmeter.access.signatures import ROA
from jobmeter.errors import UnauthenticatedError

DATE = "Fri, 20 Nov 2026 15:33:58 GMT"
DATE_MS = 1_795_188_838_000


def signed(segments: list[str], query: dict[str, str], body: bytes, secret: str, *, legacy: bool) -> Call:
    """Sign like the legacy core (everything unescaped, Content-MD5), or with ``v2`` like newer clients."""
    method = "POST" if body else "GET"
    wire = "/" + "/".join(quote(segment, safe="~") for segment in segments)
    path = "/" + "/".join(segments) if legacy else wire
    headers = {
        "accept": "application/json",
        "date": DATE,
        "x-acs-action": "GetInstanceMetric",
        "x-acs-version": "2018-11-11",
        "x-acs-signature-method": "HMAC-SHA1",
    }
    if body:
        headers["content-type"] = "application/json"
    if body and legacy:
        headers["content-md5"] = base64.b64encode(hashlib.md5(body).digest()).decode()
    if not legacy:
        headers["x-acs-signature-nonce"] = "n-1"
    pairs = [name if not value and not legacy else f"{name}={value}" for name, value in sorted(query.items())]
    text = "\n".join(
        [method, *(headers.get(name, "") for name in ("accept", "content-md5", "content-type", "date")), ""]
    )
    text += "".join(f"{name}:{headers[name]}\n" for name in sorted(headers) if name.startswith("x-acs-"))
    text += path + ("?" + "&".join(pairs) if pairs else "")
    signature = base64.b64encode(hmac.new(secret.encode(), text.encode(), hashlib.sha1).digest()).decode()
    query_text = "&".join(f"{quote_plus(name)}={quote_plus(value)}" for name, value in query.items())
    return Call(method, wire, query_text, (*headers.items(), ("authorization", f"acs AK:{signature}")), body)


texts = st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="&=?/%"), max_size=10)
names = st.text("abcXYZ.019_", min_size=1, max_size=8)
calls = st.fixed_dictionaries(
    {
        "segments": st.lists(texts.filter(bool), max_size=4),
        "query": st.dictionaries(names, texts, max_size=4),
        "body": st.binary(max_size=40),
        "secret": st.text("abcdef0123456789", min_size=1, max_size=40),
        "legacy": st.booleans(),
    }
)


def verifies(call: Call, secret: str) -> bool:
    try:
        verified = ROA.claim(call) is not None and ROA.verify(call, secret)
    except UnauthenticatedError:
        return False
    # The check before the body's arrival must never refuse a call that is valid with its body.
    assert ROA.verify_headers(replace(call, body=b""), secret) or not verified
    return verified


@given(parts=calls)
def test_signatures_of_either_client_are_valid(parts: dict[str, object]) -> None:
    call = signed(**parts)  # type: ignore[arg-type]
    claim = ROA.claim(call)
    assert claim is not None
    assert (claim.value, claim.date_ms, claim.nonce) == ("AK", DATE_MS, "" if parts["legacy"] else "n-1")
    assert verifies(call, str(parts["secret"]))


@given(parts=calls, data=st.data())
def test_any_single_change_is_refused(parts: dict[str, object], data: st.DataObject) -> None:
    call, secret = signed(**parts), str(parts["secret"])  # type: ignore[arg-type]
    what = data.draw(st.sampled_from(["method", "path", "query", "header", "body", "secret", "signature"]))
    changed, key = call, secret
    if what == "method":
        changed = replace(call, method="DELETE")
    elif what == "path":
        changed = replace(call, raw_path=call.raw_path + data.draw(st.sampled_from(["x", "/", "%2F"])))
    elif what == "query":
        changed = replace(call, query="new=1" + (f"&{call.query}" if call.query else ""))
    elif what == "header":
        name = data.draw(st.sampled_from([name for name, _ in call.headers if name != "authorization"]))
        changed = replace(call, headers=tuple((n, v + "1" if n == name else v) for n, v in call.headers))
        # The body is empty, so its type may be anything or missing.
        assume(name != "content-type" or call.body)
    elif what == "body":
        # Newer clients leave the body unsigned in this scheme, so it cannot be verified.
        assume(parts["legacy"] and call.body)
        changed = replace(call, body=call.body + b"1")
    elif what == "secret":
        key = secret + "1"
    else:
        text = call.get_header("authorization")
        other = "A" if text[9] != "A" else "B"
        headers = tuple((n, v[:9] + other + v[10:] if n == "authorization" else v) for n, v in call.headers)
        changed = replace(call, headers=headers)
    assert not verifies(changed, key), what


def test_a_bodyless_request_may_have_got_a_content_type_on_its_way() -> None:
    call = signed(["api"], {}, b"", "s", legacy=False)
    assert verifies(replace(call, headers=(*call.headers, ("content-type", "application/octet-stream"))), "s")


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ([("authorization", "acs AK")], "malformed"),
        ([("authorization", "acs :x")], "malformed"),
        ([("authorization", "acs AK:x")], "incomplete-signature"),
        ([("authorization", "acs AK:x"), ("date", "yesterday")], "malformed"),
        ([("authorization", "acs AK:x"), ("date", DATE), ("x-acs-signature-method", "HMAC-MD5")], "malformed"),
        ([("authorization", "acs AK:x"), ("date", DATE), ("x-acs-a", "1"), ("x-acs-a", "2")], "malformed"),
    ],
)
def test_a_broken_claim_says_why(headers: list[tuple[str, str]], reason: str) -> None:
    with pytest.raises(UnauthenticatedError) as refused:
        ROA.claim(Call("GET", "/", "", tuple(headers)))
    assert refused.value.reason == reason


def test_other_credentials_are_no_claim() -> None:
    call = Call("GET", "/", "", (("authorization", "Bearer acs"),))
    assert ROA.claim(call) is None
    assert ROA.verify(call, "s") is False


@pytest.mark.parametrize("legacy", [True, False])
def test_a_signature_over_two_segments_does_not_hold_for_one_with_an_escaped_slash(legacy: bool) -> None:
    call = signed(["jobs", "a", "b"], {}, b"", "secret", legacy=legacy)
    assert verifies(call, "secret")
    for path in ("/jobs/a%2Fb", "/jobs/a%2fb", "/jobs%2Fa/b", "%2Fjobs/a/b"):
        assert not verifies(replace(call, raw_path=path), "secret"), path


def test_a_signature_over_an_escape_does_not_hold_for_an_escaped_one() -> None:
    call = signed(["jobs", "a b"], {}, b"", "secret", legacy=False)
    assert call.raw_path == "/jobs/a%20b"
    assert verifies(call, "secret")
    assert not verifies(replace(call, raw_path="/jobs/a%2520b"), "secret")


def test_a_percent_sign_in_a_segment_holds() -> None:
    """The legacy core signs ``50%`` and its HTTP library sends ``50%25``."""
    assert verifies(signed(["jobs", "50%"], {}, b"", "secret", legacy=True), "secret")
