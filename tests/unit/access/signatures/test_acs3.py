"""Tests of ACS3 signatures against an independent signer, written from the vendor's description."""

import hashlib
import hmac
from dataclasses import replace
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from jobmeter.access.call import Call
from jobmeter.access.signatures import ACS3
from jobmeter.errors import UnauthenticatedError

DATE = "2026-11-20T15:33:56Z"
DATE_MS = 1_795_188_836_000
Headers = dict[str, str]


def signed(
    method: str,
    segments: list[str],
    query: dict[str, str],
    extra: Headers,
    body: bytes,
    secret: str,
    *,
    hashed: str = "sha256",
    algorithm: str = "ACS3-HMAC-SHA256",
    order: int = 0,
) -> Call:
    """Sign as the vendor describes, then write the request like an HTTP library."""
    digest = hashlib.new(hashed, body).hexdigest()
    headers = {
        **extra,
        "host": "http://127.0.0.1:8080",
        "x-acs-action": "GetJobMetrics",
        "x-acs-version": "2020-12-03",
        "x-acs-date": DATE,
        "x-acs-signature-nonce": "3583c0bac06c3638c9ca383826c8ee50",
        "x-acs-content-sha256": digest,
    }
    names = sorted(headers)
    path = "/" + "/".join(quote(segment, safe="~") for segment in segments)
    expected = "&".join(f"{quote(name, safe='~')}={quote(query[name], safe='~')}" for name in sorted(query))
    canonical = "\n".join(
        [method, path, expected, *(f"{name}:{headers[name].strip()}" for name in names), "", ";".join(names), digest]
    )
    to_sign = f"{algorithm}\n{hashlib.new(hashed, canonical.encode()).hexdigest()}"
    signature = hmac.new(secret.encode(), to_sign.encode(), hashed).hexdigest()
    authorization = f"{algorithm} Credential=AK,SignedHeaders={';'.join(names)},Signature={signature}"
    pairs = [*headers.items(), ("authorization", authorization), ("accept-encoding", "identity")]
    wire = "&".join(f"{quote_plus(name)}={quote_plus(value)}" for name, value in query.items())
    rotated = pairs[order % len(pairs) :] + pairs[: order % len(pairs)]
    return Call(method, path, wire, tuple((name, value.strip()) for name, value in rotated), body)


texts = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=12)
names = st.text("abcdefghijklmnopqrstuvwxyzABCXYZ.0189_", min_size=1, max_size=8)
values = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=12)
calls = st.fixed_dictionaries(
    {
        "method": st.sampled_from(["GET", "POST", "PUT", "DELETE"]),
        "segments": st.lists(texts, max_size=4),
        "query": st.dictionaries(names, texts, max_size=4),
        "extra": st.dictionaries(st.sampled_from(["accept", "content-type", "user-agent", "x-acs-region"]), values),
        "body": st.binary(max_size=40),
        "secret": st.text(min_size=1, max_size=40).filter(lambda text: text.isprintable()),
        "order": st.integers(0, 12),
    }
)


@given(parts=calls)
def test_a_signature_made_as_documented_is_valid(parts: dict[str, object]) -> None:
    call = signed(**parts)  # type: ignore[arg-type]
    claim = ACS3.claim(call)
    assert claim is not None
    assert (claim.value, claim.date_ms, claim.nonce) == ("AK", DATE_MS, "3583c0bac06c3638c9ca383826c8ee50")
    assert ACS3.verify(call, str(parts["secret"]))


def verifies(call: Call, secret: str) -> bool:
    try:
        verified = ACS3.claim(call) is not None and ACS3.verify(call, secret)
    except UnauthenticatedError:
        return False
    # The check before the body's arrival must never refuse a call that is valid with its body.
    assert ACS3.verify_headers(replace(call, body=b""), secret) or not verified
    return verified


@given(parts=calls, data=st.data())
def test_any_single_change_is_refused(parts: dict[str, object], data: st.DataObject) -> None:
    call, secret = signed(**parts), str(parts["secret"])  # type: ignore[arg-type]
    what = data.draw(st.sampled_from(["method", "path", "query", "header", "dropped", "body", "secret", "signature"]))
    changed, key = call, secret
    if what == "method":
        changed = replace(call, method=data.draw(st.sampled_from(["HEAD", "get", "PATCH"])))
    elif what == "path":
        extra = data.draw(st.sampled_from(["x", "/", "%2F", "//y"]))
        changed = replace(call, raw_path=call.raw_path + extra)
    elif what == "query":
        name = data.draw(names)
        assume(name not in parts["query"])  # type: ignore[operator]
        changed = replace(call, query=f"{name}={data.draw(names)}" + (f"&{call.query}" if call.query else ""))
    elif what in {"header", "dropped"}:
        signed_names = [name for name, _ in call.headers if name not in {"authorization", "accept-encoding"}]
        name = data.draw(st.sampled_from(signed_names))
        old = call.get_header(name)
        headers = tuple((n, v + "1" if n == name else v) for n, v in call.headers)
        if what == "dropped":
            assume(old)
            headers = tuple(pair for pair in call.headers if pair[0] != name)
        changed = replace(call, headers=headers)
    elif what == "body":
        changed = replace(call, body=call.body + data.draw(st.binary(min_size=1, max_size=3)))
    elif what == "secret":
        key = secret + "1"
    else:
        last = call.get_header("authorization")[-1]
        other = "0" if last != "0" else "1"
        headers = tuple((n, v[:-1] + other if n == "authorization" else v) for n, v in call.headers)
        changed = replace(call, headers=headers)
    assert not verifies(changed, key), what


@given(parts=calls)
def test_what_an_http_library_unescapes_does_not_matter(parts: dict[str, object]) -> None:
    call = signed(**parts)  # type: ignore[arg-type]
    path = call.raw_path
    for escaped in ("%3A", "%40", "%2A", "%21", "%24", "%26", "%27", "%28", "%29", "%2C", "%3B", "%3D"):
        path = path.replace(escaped, bytes.fromhex(escaped[1:]).decode())
    assert ACS3.verify(replace(call, raw_path=path), str(parts["secret"]))


@pytest.mark.skipif("sm3" not in hashlib.algorithms_available, reason="this OpenSSL has no SM3")
@given(parts=calls)
def test_sm3_is_the_same_with_another_hash(parts: dict[str, object]) -> None:
    call = signed(**parts, hashed="sm3", algorithm="ACS3-HMAC-SM3")  # type: ignore[arg-type]
    assert verifies(call, str(parts["secret"]))
    assert not verifies(replace(call, body=call.body + b"x"), str(parts["secret"]))


def test_a_slash_inside_a_segment_stays_inside() -> None:
    call = signed("GET", ["a/b"], {}, {}, b"", "s")
    assert call.raw_path == "/a%2Fb"
    assert verifies(call, "s")
    assert not verifies(replace(call, raw_path="/a/b"), "s")


def test_the_order_of_a_repeated_parameter_matters() -> None:
    call = signed("GET", ["a"], {"n": "1"}, {}, b"", "s")
    assert not verifies(replace(call, query="n=2&n=1"), "s")
    assert not verifies(replace(call, query="n=1&n=2"), "s")


def test_bytes_that_are_no_text_are_distinguished() -> None:
    call = signed("GET", ["a"], {"n": "\N{REPLACEMENT CHARACTER}"}, {}, b"", "s")
    assert verifies(call, "s")
    assert not verifies(replace(call, query="n=%FF"), "s")


def authorization(call: Call, text: str) -> Call:
    return replace(call, headers=tuple((n, text if n == "authorization" else v) for n, v in call.headers))


@pytest.mark.parametrize(
    "missing", ["host", "x-acs-action", "x-acs-date", "x-acs-signature-nonce", "x-acs-content-sha256"]
)
def test_what_must_be_signed_is_demanded(missing: str) -> None:
    call = signed("GET", ["a"], {}, {}, b"", "s")
    text = call.get_header("authorization").replace(f"{missing};", "").replace(f";{missing}", "")
    with pytest.raises(UnauthenticatedError) as refused:
        ACS3.claim(authorization(call, text))
    assert refused.value.reason == "incomplete-signature"
    assert missing in refused.value.message


def test_a_header_that_steers_must_be_signed() -> None:
    call = signed("GET", ["a"], {}, {}, b"", "s")
    with pytest.raises(UnauthenticatedError) as refused:
        ACS3.claim(replace(call, headers=(*call.headers, ("x-acs-security-token", "t"))))
    assert refused.value.reason == "incomplete-signature"


@pytest.mark.parametrize(
    "text",
    [
        "ACS3-HMAC-SHA256",
        "ACS3-HMAC-SHA256 Credential=AK",
        "ACS3-HMAC-SHA256 Credential=,SignedHeaders=host,Signature=00",
        "ACS3-HMAC-SHA256 Credential=AK,SignedHeaders=host,Signature=XYZ",
        "ACS3-RSA-SHA256 Credential=AK,SignedHeaders=host,Signature=00",
        "ACS3-HMAC-MD5 Credential=AK,SignedHeaders=host,Signature=00",
    ],
)
def test_another_form_is_malformed(text: str) -> None:
    with pytest.raises(UnauthenticatedError) as refused:
        ACS3.claim(Call("GET", "/", "", (("authorization", text),)))
    assert refused.value.reason == "malformed"


@pytest.mark.parametrize(
    "date", ["", "now", "2026-11-20 15:33:56", "2026-13-20T15:33:56Z", "2026-11-20T15:33:56+08:00"]
)
def test_a_date_of_another_form_is_malformed(date: str) -> None:
    call = signed("GET", ["a"], {}, {}, b"", "s")
    with pytest.raises(UnauthenticatedError) as refused:
        ACS3.claim(replace(call, headers=tuple((n, date if n == "x-acs-date" else v) for n, v in call.headers)))
    assert refused.value.reason == "malformed"


@pytest.mark.parametrize("headers", [(), (("authorization", "Bearer x"),), (("authorization", "acs AK:sig"),)])
def test_other_credentials_are_no_claim(headers: tuple[tuple[str, str], ...]) -> None:
    call = Call("GET", "/", "", headers)
    assert ACS3.claim(call) is None
    assert ACS3.verify(call, "s") is False


def test_a_signature_over_two_segments_does_not_hold_for_one_with_an_escaped_slash() -> None:
    call = signed("GET", ["jobs", "a", "b"], {}, {}, b"", "secret")
    assert verifies(call, "secret")
    for path in ("/jobs/a%2Fb", "/jobs/a%2fb", "/jobs%2Fa/b", "%2Fjobs/a/b"):
        assert not verifies(replace(call, raw_path=path), "secret"), path
