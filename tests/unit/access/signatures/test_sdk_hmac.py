"""Tests of Huawei Cloud's signatures: the published example, recorded calls, and an independent signer."""

import hashlib
import hmac
import json
from base64 import b64decode
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from jobmeter.access.call import Call
from jobmeter.access.signatures import HUAWEI, SDK_HMAC, ClaimKind, sm2
from jobmeter.access.signatures.sdk_hmac import describe_canonical_request
from jobmeter.errors import UnauthenticatedError

DATE, DATE_MS = "20261120T153356Z", 1_795_188_836_000
KEY = "JMAKTESTTESTTESTTEST"
SM3 = "sm3" in hashlib.algorithms_available
HASHES = {
    "SDK-HMAC-SHA256": "sha256",
    "V11-HMAC-SHA256": "sha256",
    "SDK-ECDSA-P256-SHA256": "sha256",
    **({"SDK-HMAC-SM3": "sm3", "SDK-SM2-SM3": "sm3"} if SM3 else {}),
}
ORDERS = {
    "SDK-ECDSA-P256-SHA256": 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551,
    "SDK-SM2-SM3": 0xFFFFFFFEFFFFFFFFFFFFFFFFFFFFFFFF7203DF6B21C6052B53BBF40939D54123,
}


# SM2 curve in affine coordinates, as in GB/T 32918.
P = 0xFFFFFFFEFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF00000000FFFFFFFFFFFFFFFF
A = 0xFFFFFFFEFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF00000000FFFFFFFFFFFFFFFC
B = 0x28E9FA9E9D9F5E344D5A9E4BCF6509A7F39789F515AB8F92DDBCBD414D940E93
G = (
    0x32C4AE2C1F1981195F9904466A39C9948FE30BBFF2660BE1715A4589334C74C7,
    0xBC3736A2F4F6779C59BDCEE36B692153D0A9877CC62A474002DF32E52139F0A0,
)
Point = tuple[int, int] | None


def plus(one: Point, other: Point) -> Point:
    if one is None or other is None:
        return other if one is None else one
    if one[0] == other[0]:
        if (one[1] + other[1]) % P == 0:
            return None
        slope = (3 * one[0] ** 2 + A) * pow(2 * one[1], -1, P)
    else:
        slope = (one[1] - other[1]) * pow(one[0] - other[0], -1, P)
    x = (slope**2 - one[0] - other[0]) % P
    return x, (slope * (one[0] - x) - one[1]) % P


def times(number: int, point: Point) -> tuple[int, int]:
    result: Point = None
    while number:
        result = plus(result, point) if number & 1 else result
        point, number = plus(point, point), number >> 1
    assert result is not None
    return result


def sm2_signature(private: int, text: bytes, nonce: int) -> bytes:
    order, public = ORDERS["SDK-SM2-SM3"], times(private, G)
    numbers = b"".join(number.to_bytes(32, "big") for number in (A, B, *G, *public))
    z = hashlib.new("sm3", b"\x00\x80" + b"1234567812345678" + numbers).digest()
    r = (int.from_bytes(hashlib.new("sm3", z + text).digest(), "big") + times(nonce, G)[0]) % order
    s = pow(1 + private, -1, order) * (nonce - r * private) % order
    return encode_dss_signature(r, s)


def private_number(algorithm: str, secret: str) -> int:
    data = b"\x00\x00\x00\x01" + algorithm.encode() + b"\x00" + KEY.encode() + b"\x00" + b"\x00\x00\x01\x00"
    number = int.from_bytes(hmac.new(secret.encode(), data, HASHES[algorithm]).digest(), "big")
    assert number <= ORDERS[algorithm] - 2, "the derivation's second round has a chance of 2^-32"
    return number + 1


def signature_of(algorithm: str, secret: str, info: str, text: bytes, nonce: int = 7**70) -> str:
    if algorithm == "SDK-SM2-SM3":
        return sm2_signature(private_number(algorithm, secret), text, nonce).hex()
    if algorithm == "SDK-ECDSA-P256-SHA256":
        key = ec.derive_private_key(private_number(algorithm, secret), ec.SECP256R1())
        return key.sign(text, ec.ECDSA(hashes.SHA256())).hex()
    if info:
        extracted = hmac.new(KEY.encode(), secret.encode(), "sha256").digest()
        secret = hmac.new(extracted, info.encode() + b"\x01", "sha256").hexdigest()
    return hmac.new(secret.encode(), text, HASHES[algorithm]).hexdigest()


@dataclass(frozen=True)
class Made:
    call: Call
    secret: str


def make(
    algorithm: str = "SDK-HMAC-SHA256",
    *,
    method: str = "GET",
    segments: tuple[str, ...] = ("v2", "p"),
    query: tuple[tuple[str, str], ...] = (),
    extra: tuple[tuple[str, str], ...] = (),
    body: bytes = b"",
    secret: str = "secret",
    info: str = "20261120/cn-north-4/modelarts",
    payload: str | None = None,
    shuffle: int = 0,
) -> Made:
    """Sign as the vendor describes, then write the request like an HTTP library."""
    hashed = HASHES[algorithm]
    headers = {"host": "127.0.0.1:8080", "x-sdk-date": DATE, **dict(extra)}
    named = sorted(headers)
    path = "/" + "/".join(quote(segment, safe="~") for segment in segments)
    # The SDKs unescape the path before they split it, so they sign a slash inside a segment like a separator.
    decoded = "/".join(quote(part, safe="~") for part in ("/" + "/".join(segments)).split("/"))
    expected = "&".join(f"{quote(name, safe='~')}={quote(value, safe='~')}" for name, value in sorted(query))
    canonical = (
        f"{method}\n{decoded if decoded.endswith('/') else decoded + '/'}\n{expected}\n"
        + "".join(f"{name}:{headers[name].strip()}\n" for name in named)
        + f"\n{';'.join(named)}\n{payload or hashlib.new(hashed, body).hexdigest()}"
    )
    info = info if algorithm.startswith("V11") else ""
    lines = [algorithm, DATE, *([info] if info else []), hashlib.new(hashed, canonical.encode()).hexdigest()]
    signature = signature_of(algorithm, secret, info, "\n".join(lines).encode())
    who = f"Credential={KEY}/{info}" if info else f"Access={KEY}"
    text = f"{algorithm} {who}, SignedHeaders={';'.join(named)}, Signature={signature}"
    pairs = [*((name, value.strip()) for name, value in headers.items()), ("authorization", text), ("accept", "*/*")]
    at = shuffle % len(pairs)
    wire = [(name, value.encode().decode("latin-1")) for name, value in pairs[at:] + pairs[:at]]
    sent = "&".join(f"{quote(name, safe='~')}={quote(value, safe='~')}" for name, value in query)
    return Made(Call(method, path, sent, tuple(wire), body), secret)


def verifies(call: Call, secret: str) -> bool:
    try:
        verified = SDK_HMAC.claim(call) is not None and SDK_HMAC.verify(call, secret)
    except UnauthenticatedError:
        return False
    # The check before the body's arrival must never refuse a call that is valid with its body.
    assert SDK_HMAC.verify_headers(replace(call, body=b""), secret) or not verified
    return verified


def with_header(call: Call, name: str, value: str) -> Call:
    return replace(call, headers=tuple((key, value if key == name else old) for key, old in call.headers))


texts = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=10)
names = st.text("abcdefghijklmnopqrstuvwxyzABC.0189_", min_size=1, max_size=6)
values = st.text(st.characters(min_codepoint=33, exclude_categories=["Cs", "Cc", "Zs", "Zl", "Zp"]), max_size=10)
made = st.builds(
    make,
    algorithm=st.sampled_from(sorted(HASHES)),
    method=st.sampled_from(["GET", "POST", "PUT", "DELETE"]),
    segments=st.lists(texts.filter(lambda text: "/" not in text), max_size=4).map(tuple),
    query=st.dictionaries(names, texts, max_size=4).map(lambda found: tuple(found.items())),
    extra=st.dictionaries(
        st.sampled_from(["content-type", "user-agent", "x-project-id", "x-language"]), values, max_size=3
    ).map(lambda found: tuple(found.items())),
    body=st.binary(max_size=30),
    secret=st.text(min_size=1, max_size=40).filter(str.isprintable),
    shuffle=st.integers(0, 12),
)


@settings(max_examples=60)
@given(one=made)
def test_a_signature_made_as_documented_is_valid(one: Made) -> None:
    claim = SDK_HMAC.claim(one.call)
    assert claim is not None
    assert (claim.kind, claim.value, claim.date_ms, claim.nonce) == (ClaimKind.ACCESS_KEY, KEY, DATE_MS, "")
    assert SDK_HMAC.verify(one.call, one.secret)


@settings(max_examples=80)
@given(one=made, data=st.data())
def test_any_single_change_is_refused(one: Made, data: st.DataObject) -> None:
    call, secret = one.call, one.secret
    what = data.draw(st.sampled_from(["method", "path", "query", "header", "dropped", "body", "secret", "key"]))
    changed = call
    if what == "method":
        changed = replace(call, method=data.draw(st.sampled_from(["HEAD", "PATCH"])))
    elif what == "path":
        changed = replace(call, raw_path=call.raw_path + data.draw(st.sampled_from(["x", "/y", "%2Fz", "//y"])))
    elif what == "query":
        changed = replace(call, query=f"zzzzzzz=1&{call.query}" if call.query else "zzzzzzz=1")
    elif what in {"header", "dropped"}:
        name = data.draw(st.sampled_from([key for key, _ in call.headers if key not in {"authorization", "accept"}]))
        changed = with_header(call, name, call.get_header(name) + "1")
        if what == "dropped":
            changed = replace(call, headers=tuple(pair for pair in call.headers if pair[0] != name))
    elif what == "body":
        changed = replace(call, body=call.body + b"x")
    elif what == "secret":
        secret += "1"
    else:
        changed = with_header(call, "authorization", call.get_header("authorization").replace(KEY, f"{KEY}1"))
        # The HMAC of the plain variants does not cover the key id, but another id has another secret.
        assume("HMAC" not in call.get_header("authorization") or "V11" in call.get_header("authorization"))
    assert not verifies(changed, secret), what


@pytest.mark.parametrize("algorithm", sorted(HASHES))
def test_a_signature_of_another_algorithm_does_not_hold(algorithm: str) -> None:
    call = make(algorithm).call
    for other in HASHES.keys() - {algorithm, "V11-HMAC-SHA256"}:
        text = call.get_header("authorization").replace(
            f"Credential={KEY}/20261120/cn-north-4/modelarts", f"Access={KEY}"
        )
        assert not verifies(with_header(call, "authorization", text.replace(algorithm, other)), "secret")


def test_the_published_example_holds() -> None:
    """https://support.huaweicloud.com/intl/en-us/devg-apisign/api-sign-algorithm-005.html, with its key pair."""
    signature = "7be6668032f70418fcc22abc52071e57aff61b84a1d2381bb430d6870f4f6ebe"
    signed = "Access=QTWAOYTTINDUT2QVKYUC, SignedHeaders=content-type;host;x-sdk-date"
    text = f"SDK-HMAC-SHA256 {signed}, Signature={signature}"
    call = Call(
        "GET",
        "/v1/77b6a44cba5143ab91d13ab9a8ff44fd/vpcs",
        "limit=2&marker=13551d6b-755d-4757-b956-536f674975c0",
        (
            ("content-type", "application/json"),
            ("host", "service.region.example.com"),
            ("x-sdk-date", "20191115T033655Z"),
            ("authorization", text),
        ),
    )
    assert verifies(call, "MFyfvK41ba2giqM7Uio6PznpdUKGpownRZlmVmHc")
    assert not verifies(call, "MFyfvK41ba2giqM7Uio6PznpdUKGpownRZlmVmHd")


@pytest.mark.parametrize("algorithm", sorted(HASHES))
def test_a_signature_over_two_segments_does_not_hold_for_one_with_an_escaped_slash(algorithm: str) -> None:
    one = make(algorithm, segments=("v2", "p", "training-jobs", "a", "b"))
    assert verifies(one.call, one.secret)
    for path in ("/v2/p/training-jobs/a%2Fb", "/v2/p/training-jobs/a%2fb", "/v2/p%2Ftraining-jobs/a/b", "%2Fv2/p/a/b"):
        assert not verifies(replace(one.call, raw_path=path), one.secret), path
    as_sdks_sign_it = make(algorithm, segments=("v2", "p", "training-jobs", "a/b"))
    assert not verifies(as_sdks_sign_it.call, as_sdks_sign_it.secret), "it would hold for a/b too"
    escaped = make(algorithm, segments=("a%2Fb",))
    assert escaped.call.raw_path == "/a%252Fb"
    assert verifies(escaped.call, escaped.secret)
    assert not verifies(replace(escaped.call, raw_path="/a%2Fb"), escaped.secret)


RECORDED = json.loads(Path(__file__).with_name("huawei_calls.json").read_text())


@pytest.mark.parametrize("entry", RECORDED["calls"], ids=lambda entry: str(entry["name"]))
def test_a_recorded_signature_holds_and_no_other(entry: dict[str, Any]) -> None:
    if ("sm" in entry["name"]) and not SM3:
        pytest.skip("this OpenSSL has no SM3")
    headers = tuple((name, value) for name, value in entry["headers"])
    call = Call(entry["method"], entry["raw_path"], entry["query"], headers, b64decode(entry["body"]))
    secret = RECORDED["access_key_secret"]
    claim = SDK_HMAC.claim(call)
    assert claim is not None
    assert claim.value == RECORDED["access_key_id"]
    assert SDK_HMAC.verify(call, secret) == ("%2F" not in call.raw_path)
    assert not SDK_HMAC.verify(call, f"{secret}x")
    for changed in (
        replace(call, method="PUT"),
        replace(call, raw_path=call.raw_path.replace("/default/", "/other/")),
        replace(call, query=f"{call.query}&more=1"),
        replace(call, body=call.body + b" "),
        with_header(call, "x-project-id", "other"),
        with_header(call, "x-sdk-date", "20261120T000000Z"),
    ):
        assert not verifies(changed, secret)


def test_the_query_may_come_in_another_order_but_not_in_another_meaning() -> None:
    call = make(query=(("b", "1"), ("a", "2"))).call
    assert call.query == "b=1&a=2"
    assert verifies(call, "secret")
    assert verifies(replace(call, query="a=2&b=1"), "secret")
    twice = make(query=(("a", "1"), ("a", "2"))).call
    assert verifies(twice, "secret")
    assert not verifies(replace(twice, query="a=2&a=1"), "secret")


def test_an_unsigned_body_is_taken_as_the_client_says() -> None:
    kind = (("content-type", "text/plain"), ("x-sdk-content-sha256", "UNSIGNED-PAYLOAD"))
    unsigned = make(method="POST", extra=kind, body=b"any", payload="UNSIGNED-PAYLOAD").call
    assert verifies(unsigned, "secret")
    assert verifies(replace(unsigned, body=b"other"), "secret"), "that is what the client chose"
    empty = make(method="POST", extra=kind).call
    assert verifies(empty, "secret"), "Python hashes an empty body all the same"
    assert not verifies(replace(empty, body=b"other"), "secret")
    assert verifies(make(method="POST", extra=kind, payload="UNSIGNED-PAYLOAD").call, "secret"), "Go does not"


def test_a_hash_that_the_client_names_is_checked() -> None:
    right = hashlib.sha256(b"body").hexdigest()
    assert verifies(make(extra=(("x-sdk-content-sha256", right),), body=b"body").call, "secret")
    wrong = make(extra=(("x-sdk-content-sha256", right),), body=b"evil", payload=right).call
    assert not verifies(wrong, "secret")


def test_a_token_is_enough_where_a_signature_is_there_too() -> None:
    call = make(extra=(("x-auth-token", "jm_token"),)).call
    first = next(claim for scheme in HUAWEI if (claim := scheme.claim(call)))
    assert (first.kind, first.value) == (ClaimKind.TOKEN, "jm_token")


def refusal(call: Call) -> str:
    with pytest.raises(UnauthenticatedError) as refused:
        SDK_HMAC.claim(call)
    return refused.value.reason


@pytest.mark.parametrize(
    "text",
    [
        "SDK-HMAC-SHA256",
        "SDK-HMAC-SHA256 Access=AK",
        "SDK-HMAC-SHA256 Access=, SignedHeaders=x-sdk-date, Signature=00",
        "SDK-HMAC-SHA256 Access=AK, SignedHeaders=x-sdk-date, Signature=XYZ",
        "SDK-HMAC-SHA256 Access=AK, SignedHeaders=X-Sdk-Date, Signature=00",
        "SDK-HMAC-MD5 Access=AK, SignedHeaders=x-sdk-date, Signature=00",
        "SDK-HMAC-SHA256 Credential=AK/20261120/r/s, SignedHeaders=x-sdk-date, Signature=00",
        "V11-HMAC-SHA256 Access=AK, SignedHeaders=x-sdk-date, Signature=00",
        "V11-HMAC-SHA256 Credential=AK/20261120/r, SignedHeaders=x-sdk-date, Signature=00",
        "V11-HMAC-SHA256 Credential=AK/20261119/r/s, SignedHeaders=x-sdk-date, Signature=00",
        "V12-HMAC-SHA256 Access=AK, SignedHeaders=x-sdk-date, Signature=00",
    ],
)
def test_another_form_is_no_claim(text: str) -> None:
    call = Call("GET", "/", "", (("authorization", text), ("x-sdk-date", DATE)))
    if text.startswith("V12"):
        assert SDK_HMAC.claim(call) is None
    else:
        assert refusal(call) == "malformed"


def test_the_date_must_be_signed_and_every_signed_header_there_once() -> None:
    call = make(extra=(("x-language", "en-us"),)).call
    text = call.get_header("authorization")
    assert refusal(with_header(call, "authorization", text.replace(";x-sdk-date", ""))) == "incomplete-signature"
    assert refusal(replace(call, headers=(*call.headers, ("x-language", "zh-cn")))) == "malformed"
    gone = tuple(pair for pair in call.headers if pair[0] != "x-language")
    assert refusal(replace(call, headers=gone)) == "incomplete-signature"


@pytest.mark.parametrize("algorithm", sorted(HASHES))
def test_a_security_token_must_be_signed(algorithm: str) -> None:
    signed = make(algorithm, extra=(("x-security-token", "sts"),)).call
    assert SDK_HMAC.claim(signed) is not None
    without = make(algorithm).call
    assert refusal(replace(without, headers=(*without.headers, ("x-security-token", "sts")))) == "incomplete-signature"
    assert refusal(replace(signed, headers=(*signed.headers, ("x-security-token", "other")))) == "malformed"


@pytest.mark.parametrize("date", ["", "now", "2026-11-20T15:33:56Z", "20261320T153356Z", "20261120T153356"])
def test_a_date_of_another_form_is_malformed(date: str) -> None:
    assert refusal(with_header(make().call, "x-sdk-date", date)) == "malformed"


@pytest.mark.parametrize("headers", [(), (("authorization", "Bearer x"),), (("authorization", "acs AK:sig"),)])
def test_other_credentials_are_no_claim(headers: tuple[tuple[str, str], ...]) -> None:
    call = Call("GET", "/", "", headers)
    assert SDK_HMAC.claim(call) is None
    assert SDK_HMAC.verify(call, "s") is False
    assert describe_canonical_request(call) == ""


def test_a_refusal_can_show_what_should_have_been_signed() -> None:
    text = describe_canonical_request(make(query=(("a", "b c"),)).call)
    assert text.split("\n")[:5] == ["GET", "/v2/p/", "a=b%20c", "host:127.0.0.1:8080", f"x-sdk-date:{DATE}"]


@pytest.mark.skipif(not SM3, reason="this OpenSSL has no SM3")
def test_the_example_of_the_sm2_standard_holds() -> None:
    """GM/T 0003.5: the recommended curve and its example of a signature."""
    key = sm2.compute_public_key(0x3945208F7B2144B13F36E38AC6D39F95889393692860B51A42FB81EF4DF7C5B8)
    assert key.x == 0x09F9DF311E5421A150DD7D161E4BC5C672179FAD1833FC076BB08FF356F35020
    assert key.y == 0xCCEA490CE26775A52DC6EA718CC1AA600AED05FBF35E084A6632F6072DA9AD13
    r = 0xF5A03B0648D2C4630EEAC513E1BB81A15944DA3827D5B74143AC7EACEEE720B3
    s = 0xB1B6AA29DF212FD8763182BC0D421CA1BB9038FD1F7F42D4840B69C485BBC1AA
    assert sm2.verify(key, r, s, b"message digest")
    assert not sm2.verify(key, r, s, b"message digest.")
    assert not sm2.verify(key, r, sm2.N - r, b"message digest")
    assert not any(sm2.verify(key, *pair, b"message digest") for pair in ((0, s), (r, 0), (sm2.N, s), (r, sm2.N)))


@pytest.mark.skipif(not SM3, reason="this OpenSSL has no SM3")
@given(private=st.integers(1, sm2.N - 2))
def test_a_public_key_is_that_many_times_the_generator(private: int) -> None:
    key = sm2.compute_public_key(private)
    assert (key.x, key.y) == times(private, G)
