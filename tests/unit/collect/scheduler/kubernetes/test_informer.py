"""Tests of an informer whose API server fails in every way: retries, log messages, and events that are still read."""

import json
import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.fakes import SetClock
from tests.support.waiting import wait_until

from jobmeter.collect.scheduler.kubernetes.api import AbsentError, DeniedError, GoneError, HttpApi
from jobmeter.collect.scheduler.kubernetes.informer import Informer
from jobmeter.collect.scheduler.kubernetes.objects import PodObject, Workload
from jobmeter.collect.scheduler.kubernetes.pages import read_page
from jobmeter.errors import UnavailableError

AWAY = UnavailableError("the API server does not answer")


def named(name: str, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"uid": name, "name": name, "resourceVersion": "2"}, "spec": spec}


class Scripted(HttpApi):
    """API server that runs the test's script at each list and watch; the default watch ends in order after a minute."""

    def __init__(self, clock: SetClock) -> None:
        self.clock = clock
        self.items: list[Any] = [named("a")]
        self.on_list: Callable[[], None] = lambda: None
        self.on_watch: Callable[[], Iterator[bytes]] = self.quiet
        self.calls: list[str] = []

    def read_page(self, path: str, token: str) -> bytes:
        self.calls.append("list")
        self.on_list()
        return msgspec.json.encode({"items": self.items, "metadata": {"resourceVersion": "1"}})

    def watch(self, path: str, version: str) -> Iterator[bytes]:
        self.calls.append("watch")
        yield from self.on_watch()

    def quiet(self) -> Iterator[bytes]:
        yield b""
        self.clock.time_ms += 60_000


class Informed:
    """Informer whose waits take no time: ``tries`` makes ``count`` attempts and returns the wait after each."""

    def __init__(self, kind: type[Any] = Workload, *, optional: bool = True) -> None:
        self.clock = SetClock()
        self.api = Scripted(self.clock)
        self.informer: Informer[Any] = Informer(self.api, "apis/x/v1/things", kind, optional=optional, clock=self.clock)

    def tries(self, count: int) -> list[float]:
        waits: list[float] = []

        class Stop(threading.Event):
            def wait(self, timeout: float | None = None) -> bool:
                waits.append(timeout or 0.0)
                return len(waits) >= count

        self.informer.stopping = Stop()
        self.informer.run()
        return waits


def fail(error: Exception) -> Callable[[], Any]:
    def failing() -> Any:
        raise error

    return failing


def broken(*lines: bytes, error: Exception = AWAY, after_ms: int = 0) -> Callable[[], Iterator[bytes]]:
    """Return a watch that gives these lines and then breaks off."""

    def watching() -> Iterator[bytes]:
        yield from lines
        raise error

    return watching


def grows(waits: list[float], first: float = 1.0, longest: float = 60.0) -> bool:
    """Return True if each wait is between half and all of a delay that doubles up to the longest."""
    whole = [min(first * 2**number, longest) for number in range(len(waits))]
    return all(one / 2 <= wait <= one for one, wait in zip(whole, waits, strict=True))


@pytest.mark.parametrize("stage", ["list", "watch", "accepted watch", "gone at each list", "watch ends at once"])
def test_a_server_that_fails_is_tried_less_and_less_often(stage: str) -> None:
    one = Informed()
    if stage == "list":
        one.api.on_list = fail(AWAY)
    elif stage == "watch":
        one.api.on_watch = broken()
    elif stage == "accepted watch":
        one.api.on_watch = broken(b"")
    elif stage == "gone at each list":
        one.api.on_watch = broken(error=GoneError("too old"))
    else:
        one.api.on_watch = lambda: iter([b""])
    waits = one.tries(12)
    assert grows(waits), waits
    assert one.api.calls.count("list") == (12 if stage in ("list", "gone at each list") else 1)
    assert one.api.calls.count("watch") == (0 if stage == "list" else 12)


@pytest.mark.parametrize("longer_ms", [29_000, 31_000])
def test_a_watch_that_lasted_makes_the_next_failure_the_first(longer_ms: int) -> None:
    one = Informed()
    one.api.on_list = fail(AWAY)
    one.tries(6)
    one.api.on_list = lambda: None

    def lasting() -> Iterator[bytes]:
        yield b""
        one.clock.time_ms += longer_ms
        raise AWAY

    one.api.on_watch = lasting
    waits = one.tries(3)
    assert grows(waits[:1]) is (longer_ms > 30_000)
    assert all(wait >= 16.0 for wait in waits) is (longer_ms < 30_000)


def test_an_event_makes_the_next_failure_the_first() -> None:
    one = Informed()
    event = json.dumps({"type": "MODIFIED", "object": named("a")}).encode()
    one.api.on_watch = broken(b"", event)
    assert all(0.5 <= wait <= 1.0 for wait in one.tries(8))


def test_the_problem_lasts_until_the_server_answers() -> None:
    one = Informed()
    one.tries(1)
    assert (one.informer.problem, one.informer.ready.is_set()) == ("", True)
    seen = []
    one.api.on_watch = broken()
    for _ in range(5):
        one.tries(1)
        seen.append(one.informer.problem)
    assert seen == [AWAY.message] * 5
    during = []

    def answering() -> Iterator[bytes]:
        yield b""
        during.append(one.informer.problem)
        one.clock.time_ms += 60_000

    one.api.on_watch = answering
    one.tries(1)
    # The outage ends with the accepted watch, which may bring no event for minutes.
    assert (during, one.informer.problem) == ([""], "")


UNEXPECTED = [TypeError("x"), RecursionError("deep"), UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"), MemoryError()]


@pytest.mark.parametrize("error", UNEXPECTED, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("stage", ["list", "watch"])
def test_an_unexpected_error_is_a_problem_and_the_informer_goes_on(
    error: Exception, stage: str, caplog: pytest.LogCaptureFixture
) -> None:
    one = Informed()
    one.tries(1)
    if stage == "list":
        one.api.on_watch = broken(error=GoneError("too old"))
        one.tries(1)
        one.api.on_list = fail(error)
    else:
        one.api.on_watch = broken(error=error)
    with caplog.at_level(logging.ERROR):
        waits = one.tries(4)
    assert one.informer.problem
    assert waits == sorted(waits)
    assert len(caplog.records) == (0 if isinstance(error, UnicodeDecodeError) else 1), "logged once, with its place"
    one.api.on_list, one.api.on_watch = lambda: None, one.api.quiet
    one.informer.take()
    one.api.items = [named("b")]
    one.tries(2)
    assert one.informer.problem == ""
    if stage == "list":
        assert [change.uid for change in one.informer.take()] == ["b", ""]


def test_a_thread_survives_what_kills_a_watch() -> None:
    """The informer runs on its own thread here."""
    one = Informed()
    failed, over = threading.Event(), threading.Event()

    def watching() -> Iterator[bytes]:
        if not failed.is_set():
            failed.set()
            raise TypeError("unexpected")
        yield json.dumps({"type": "ADDED", "object": named("later")}).encode()
        over.wait()

    one.api.on_watch = watching
    one.informer.start()
    try:
        found: list[str] = []

        def read() -> bool:
            found.extend(change.uid for change in one.informer.take())
            return "later" in found

        wait_until(read, "the event after the error")
    finally:
        over.set()
        one.informer.stop()


@pytest.mark.parametrize(
    ("error", "problem"), [(AbsentError("404"), ""), (DeniedError("403: may not list"), "403: may not list")]
)
def test_a_kind_that_is_not_shown_is_listed_again_after_minutes(error: UnavailableError, problem: str) -> None:
    one = Informed()
    one.api.on_list = fail(error)
    assert one.tries(4) == [300.0] * 4
    assert (one.informer.ready.is_set(), one.informer.problem) == (True, problem)
    one.api.on_list = lambda: None
    one.tries(1)
    assert one.informer.problem == ""
    assert [change.uid for change in one.informer.take()] == ["a", ""]


@pytest.mark.parametrize("error", [AbsentError("404"), DeniedError("403")])
def test_pods_have_to_be_shown(error: UnavailableError) -> None:
    one = Informed(PodObject, optional=False)
    one.api.on_list = fail(error)
    assert grows(one.tries(8))
    assert (one.informer.ready.is_set(), one.informer.problem) == (False, error.message)


def nested(depth: int) -> bytes:
    return b'{"metadata":{"uid":"deep"},"spec":{"items":' + b"[" * depth + b"]" * depth + b"}}"


ODD = [nested(5_000), b'{"metadata":{"uid":5}}', b'{"metadata":{"uid":"\xff"}}', b"[]", b'{"spec":7}']


@pytest.mark.parametrize("odd", ODD, ids=["deep", "number", "bytes", "list", "spec"])
def test_an_odd_object_hides_no_other(odd: bytes, caplog: pytest.LogCaptureFixture) -> None:
    one = Informed()
    whole = [msgspec.json.encode(named(name, text='a "[{}]," \\')) for name in "abc"]
    body = b'{"metadata":{"resourceVersion":"7"},"items":[' + b" , ".join([*whole[:2], odd, whole[2]]) + b' ] , "z": 1}'
    one.api.read_page = lambda path, token: body  # type: ignore[method-assign]
    events = [b'{"type":"ADDED","object":' + item + b"}" for item in (odd, msgspec.json.encode(named("d")))]
    one.api.on_watch = lambda: iter([b"", *events])
    one.tries(1)
    changes = one.informer.take()
    assert [change.uid for change in changes if change.found is not None] == ["a", "b", "c", "d"]
    assert [change.uids for change in changes if change.uids is not None] == [frozenset("abc")]
    assert one.informer.problem == ""
    assert len([record for record in caplog.records if "not understood" in record.message]) == 1, "not once for each"


@settings(deadline=None)
@given(
    st.lists(
        st.dictionaries(st.text(max_size=4), st.recursive(st.text(max_size=4), st.lists, max_leaves=6), max_size=3)
    ),
    st.integers(1_000, 3_000),
    st.text(max_size=5),
)
def test_a_page_that_is_cut_apart_has_the_same_objects(items: list[Any], depth: int, token: str) -> None:
    metadata = {"continue": token, "resourceVersion": '"items":['}
    plain = [json.dumps(item, indent=1).encode() for item in items]
    deep = b"[" * depth + b"]" * depth
    head = b'{"kind":"List","metadata":' + json.dumps(metadata).encode() + b',"items":['
    page = read_page(head + b",".join([*plain, deep]) + b"]}")
    assert [msgspec.json.decode(item) for item in page.items[:-1]] == items
    assert bytes(page.items[-1]) == deep
    assert (page.token, page.version) == (token, metadata["resourceVersion"])


@pytest.mark.parametrize("body", [nested(3_000), b"[" * 3_000, b"", b"\xff", b"[]", b'{"items":[' + b"[" * 3_000])
def test_what_is_no_page_is_refused(body: bytes) -> None:
    with pytest.raises((msgspec.DecodeError, UnicodeDecodeError)):
        read_page(body)
