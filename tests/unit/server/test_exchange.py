import asyncio
import gzip
import zlib
from typing import Any
from uuid import RFC_4122, UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobmeter.access.call import Call
from jobmeter.access.memory import MemoryBudget
from jobmeter.dialects.base import Answer
from jobmeter.errors import InvalidRequestError, LimitExceededError, ThrottledError
from jobmeter.server.exchange import ClientGoneError, Exchange, decode_body, make_request_id


def _exchange(chunks=(b"",), target=b"/", headers=(), gone=False, sent=None):
    messages = [{"type": "http.request", "body": chunk, "more_body": True} for chunk in chunks]
    if gone:
        messages.append({"type": "http.disconnect"})
    else:
        messages[-1]["more_body"] = False

    async def receive():
        return messages.pop(0)

    async def send(message):
        (sent if sent is not None else []).append(message)

    scope = {"method": "POST", "raw_path": target, "query_string": b"a=1", "headers": list(headers)}
    return Exchange(scope, receive, send)


def _read(exchange, limit, memory=None):
    asyncio.run(exchange.read_body(limit, memory or MemoryBudget(1000).open_account()))
    return exchange.call.body


@given(st.lists(st.binary(max_size=20), min_size=1, max_size=8))
def test_a_body_is_what_its_pieces_make(chunks):
    whole = b"".join(chunks)
    assert _read(_exchange(chunks), len(whole)) == whole


def test_a_body_is_refused_as_soon_as_it_is_too_large():
    exchange = _exchange([b"x" * 6, b"y" * 6, b"z" * 6])
    with pytest.raises(LimitExceededError) as caught:
        _read(exchange, 10)
    assert caught.value.field == "body"
    assert exchange.body_size == 6


def test_an_announced_length_that_is_too_large_is_refused_without_reading():
    exchange = _exchange([b"x"], headers=[(b"Content-Length", b"11")])
    with pytest.raises(LimitExceededError):
        _read(exchange, 10)
    assert exchange.body_size == 0


def test_a_client_that_leaves_has_sent_nothing():
    with pytest.raises(ClientGoneError):
        _read(_exchange([b"abc"], gone=True), 10)


def test_all_bodies_together_have_a_limit():
    budget = MemoryBudget(10)
    first = _exchange([b"x" * 8])
    assert _read(first, 10, budget.open_account()) == b"x" * 8
    with pytest.raises(ThrottledError):
        _read(_exchange([b"y" * 8]), 10, budget.open_account())
    assert budget.refusals == 1
    first.close()
    assert budget.in_use == 0
    assert _read(_exchange([b"z" * 8]), 10, budget.open_account()) == b"z" * 8


def test_an_announced_length_for_which_there_is_no_memory_is_refused_without_reading():
    budget = MemoryBudget(10)
    budget.take(3)
    exchange = _exchange([b"x" * 8], headers=[(b"Content-Length", b"8")])
    with pytest.raises(ThrottledError):
        _read(exchange, 10, budget.open_account())
    assert exchange.body_size == 0


def test_an_exchange_that_is_over_has_no_body():
    budget = MemoryBudget(10)
    exchange = _exchange([b"x" * 4, b"y" * 4])
    _read(exchange, 10, budget.open_account())
    exchange.close()
    assert (exchange.call.body, budget.in_use) == (b"", 0)


@pytest.mark.parametrize(
    ("target", "path"),
    [
        (b"/a%2Fb//c/", "/a%2Fb//c/"),
        (b"http://127.0.0.1:8400/a%2Fb", "/a%2Fb"),
        (b"HTTPS://host/x?y=1", "/x"),
        (b"http://host", "/"),
        (b"*", "*"),
        (b"/http://x", "/http://x"),
    ],
)
def test_a_path_stays_as_it_came(target, path):
    assert _exchange(target=target).call.raw_path == path


def test_headers_stay_in_order_and_verbatim():
    call = _exchange(headers=[(b"Host", b"http://127.0.0.1:8400/"), (b"X-A", b"\xe9"), (b"x-a", b"2")]).call
    assert call.headers == (("host", "http://127.0.0.1:8400/"), ("x-a", "\xe9"), ("x-a", "2"))


def test_an_answer_carries_its_length_and_the_request_id():
    sent: list[Any] = []
    exchange = _exchange(sent=sent)
    asyncio.run(exchange.reply(Answer(418, b"tea", (("X-Own", "1"),), "text/plain")))
    headers = dict(sent[0]["headers"])
    assert exchange.status == sent[0]["status"] == 418
    assert headers[b"content-length"] == b"3"
    assert headers[b"x-own"] == b"1"
    assert headers[b"x-request-id"].decode() == exchange.request_id
    assert sent[1]["body"] == b"tea"


def _call(body, encoding):
    return Call("POST", "/", "", (("content-encoding", encoding),) if encoding else (), body)


@given(st.binary(max_size=2000), st.sampled_from(["gzip", "x-gzip", " GZIP "]))
def test_gzip_bodies_are_read(body, encoding):
    assert decode_body(_call(gzip.compress(body), encoding), 2000) == body


@given(st.binary(max_size=200))
def test_plain_bodies_are_left_alone(body):
    assert decode_body(_call(body, ""), 10) == body
    assert decode_body(_call(body, "identity"), 10) == body


@pytest.mark.parametrize(
    ("body", "encoding"),
    [
        (b"not gzip", "gzip"),
        (b"", "gzip"),
        (gzip.compress(b"abc")[:-1], "gzip"),
        (gzip.compress(b"abc") + b"more", "gzip"),
        (zlib.compress(b"abc"), "gzip"),
        (b"abc", "br"),
        (b"abc", "gzip, gzip"),
    ],
    ids=["text", "empty", "cut off", "with more", "zlib", "brotli", "twice"],
)
def test_a_bad_encoding_is_named(body, encoding):
    with pytest.raises(InvalidRequestError) as caught:
        decode_body(_call(body, encoding), 1000)
    assert caught.value.field == "Content-Encoding"


def test_a_body_that_unpacks_to_too_much_is_refused():
    with pytest.raises(LimitExceededError):
        decode_body(_call(gzip.compress(bytes(100_000)), "gzip"), 99_999)
    assert len(decode_body(_call(gzip.compress(bytes(100_000)), "gzip"), 100_000)) == 100_000


def test_what_a_body_unpacks_to_is_accounted_for():
    budget = MemoryBudget(1_000_000)
    account = budget.open_account()
    packed = gzip.compress(bytes(3_000_000))
    with pytest.raises(ThrottledError):
        decode_body(_call(packed, "gzip").with_body(packed, account), 5_000_000)
    assert 0 < account.taken <= 1_000_000
    account.close()
    assert budget.in_use == 0


def test_what_is_left_of_a_refused_body_is_dropped_within_bounds():
    sent: list[Any] = []
    exchange = _exchange([b"x" * 6] * 10, headers=[(b"Transfer-Encoding", b"chunked")], sent=sent)

    async def refused():
        with pytest.raises(LimitExceededError):
            await exchange.read_body(10, MemoryBudget(1000).open_account())
        await exchange.reply(Answer(413, b"no"))
        await exchange.drop_rest(20)
        return await exchange.receive()

    # Two parts were read before the refusal, and four dropped.
    assert asyncio.run(refused())["more_body"] is True
    assert (b"connection", b"close") in sent[0]["headers"]


@pytest.mark.parametrize("headers", [[], [(b"Content-Length", b"0")]])
def test_where_no_body_comes_nothing_is_waited_for(headers):
    sent: list[Any] = []
    exchange = _exchange([b""], headers=headers, sent=sent)
    asyncio.run(exchange.reply(Answer(404, b"no")))
    asyncio.run(exchange.drop_rest(20))
    assert b"connection" not in dict(sent[0]["headers"])


def test_a_body_that_was_read_leaves_the_connection_open():
    sent: list[Any] = []
    exchange = _exchange([b"x" * 6], headers=[(b"Content-Length", b"6")], sent=sent)
    assert _read(exchange, 10) == b"x" * 6
    asyncio.run(exchange.reply(Answer(400, b"no")))
    asyncio.run(exchange.drop_rest(20))
    assert b"connection" not in dict(sent[0]["headers"])


def test_each_request_has_a_random_uuid_of_its_own_in_capitals():
    ids = [make_request_id() for _ in range(1000)]
    assert len(set(ids)) == 1000
    assert all(one == str(UUID(one)).upper() for one in ids)
    assert {(UUID(one).version, UUID(one).variant) for one in ids} == {(4, RFC_4122)}
