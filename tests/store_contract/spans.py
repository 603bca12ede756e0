"""Store contract for spans; ``tests.store_contract.store.StoreTests`` inherits it."""

from collections.abc import Sequence

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from jobmeter.errors import LimitExceededError
from jobmeter.model.span import KINDS, STATUSES, Span, SpanEvent, SpanKind, SpanLink, SpanScope, SpanStatus, Trace
from jobmeter.model.trace_filter import Holder, SpanCondition, SpanFilter, SpanOperator, TraceFilter, TraceOrder
from jobmeter.store.base import ReadBudget, Store
from tests.store_contract.memory_spans import MemorySpans
from tests.store_contract.samples import BUDGET, FOREVER
from tests.store_contract.slot import Slot

_SECOND = 1_000_000_000
OWN = frozenset({"default"})


def trace_id(slot: Slot, number: int = 0) -> str:
    """Trace id of the slot."""
    return f"{slot.number + 1:016x}{number:016x}"


def span_of(slot: Slot, number: int, at_ns: int = 0, lasts_ns: int = _SECOND, **parts: object) -> Span:
    """Build a span of the slot's job that starts ``at_ns`` nanoseconds after the slot."""
    start = slot.start * 1_000_000 + at_ns
    given: dict[str, object] = {
        "trace": trace_id(slot),
        "span": f"{number:016x}",
        "name": f"span-{number}",
        "job": slot.job,
        "start_ns": start,
        "end_ns": start + lasts_ns,
        **parts,
    }
    return Span(**given)  # type: ignore[arg-type]


def listed(store: Store, slot: Slot, **parts: object) -> list[Trace]:
    """List the traces of the slot's job."""
    values: dict[str, object] = {"projects": OWN, "job": slot.job, "limit": 100, **parts}
    return store.spans.list_traces(TraceFilter(**values), BUDGET).traces  # type: ignore[arg-type]


def read_spans(store: Store, *traces: str, **parts: object) -> list[Span]:
    """Read the spans of some traces."""
    return store.spans.read(SpanFilter(projects=OWN, traces=frozenset(traces), **parts), BUDGET)  # type: ignore[arg-type]


_texts = st.sampled_from(["", "a", "A", "ab", "b%_", "7", "[1]"])
_values = st.one_of(_texts, st.integers(0, 7), st.booleans(), st.just([1]), st.just(None), st.just(0.5))
_attributes = st.dictionaries(st.sampled_from(["k", "l", ""]), _values, max_size=2)
_conditions = st.builds(
    SpanCondition,
    key=st.sampled_from(["k", "l", ""]),
    value=_texts,
    operator=st.sampled_from(SpanOperator),
    holder=st.sampled_from(Holder),
)


def _some(values: Sequence[object]) -> "st.SearchStrategy[frozenset[object]]":
    return st.frozensets(st.sampled_from(values), max_size=2)


class SpanTests:
    """Contract tests for spans."""

    def test_spans_come_back_as_they_were_written(self, store: Store, slot: Slot) -> None:
        full = span_of(
            slot,
            1,
            parent="00000000000000aa",
            name="step \x00 é 🚀 'x' {y:String} \\",
            kind=SpanKind.CLIENT,
            status=SpanStatus.ERROR,
            message="no",
            replica="worker-0",
            attempt=2,
            node="n1",
            service="trainer",
            attributes={"t": "text", "i": 2**62, "f": 0.1, "b": True, "n": None, "l": [1, "x", {"y": []}], "": ""},
            resource={"service.name": "trainer", "pid": 7},
            scope=SpanScope(name="lib", version="1", attributes={"a": 1}),
            events=(SpanEvent(time_ns=5, name="e", attributes={"x": 1.5}, dropped=3), SpanEvent(time_ns=6)),
            links=(SpanLink(trace="1" * 32, span="2" * 16, state="s", attributes={"k": "v"}, flags=1),),
            state="a=b",
            flags=257,
            dropped=(1, 2, 3),
        )
        bare = span_of(slot, 2, 5, 0)
        store.spans.append([bare, full], FOREVER)
        assert read_spans(store, trace_id(slot)) == [full, bare]
        assert store.spans.read(SpanFilter(projects=frozenset({"other"}), traces=frozenset({full.trace})), BUDGET) == []
        assert read_spans(store, trace_id(slot, 7)) == read_spans(store) == []

    def test_a_span_that_is_sent_again_counts_once(self, store: Store, slot: Slot) -> None:
        spans = [span_of(slot, number, number, status=SpanStatus.ERROR) for number in range(5)]
        for _ in range(3):
            store.spans.append(spans, FOREVER)
        (found,) = listed(store, slot)
        assert (found.spans, found.errors) == (5, 5)
        assert read_spans(store, trace_id(slot)) == spans
        assert read_spans(store, trace_id(slot), limit=2) == spans[:2]

    def test_a_trace_is_what_its_spans_say(self, store: Store, slot: Slot) -> None:
        root = span_of(slot, 9, 10, 50, name="root", service="front")
        child = span_of(slot, 1, 20, 100, name="child", parent=root.span, status=SpanStatus.ERROR)
        early = span_of(slot, 2, 0, 5, name="early", parent=root.span)
        store.spans.append([child, root, early], FOREVER)
        (found,) = listed(store, slot)
        assert found == Trace(
            trace=trace_id(slot),
            project="default",
            name="root",
            service="front",
            job=slot.job,
            start_ns=early.start_ns,
            end_ns=child.end_ns,
            spans=3,
            errors=1,
        )
        assert found.duration_ns == 120
        (part,) = listed(store, slot, start_ns=root.start_ns, end_ns=child.start_ns)
        assert (part.spans, part.errors, part.start_ns) == (1, 0, root.start_ns)

    def test_pages_of_traces_and_spans_follow_each_other(self, store: Store, slot: Slot) -> None:
        lengths = [3, 1, 2, 2, 9, 2, 0]
        spans = [
            span_of(slot, number, number % 3, length, trace=trace_id(slot, number))
            for number, length in enumerate(lengths)
        ]
        store.spans.append(spans, FOREVER)
        for order in TraceOrder:
            for descending in (False, True):
                given = {"order": order, "descending": descending}
                every = listed(store, slot, **given)
                assert len(every) == len(lengths)
                paged: list[Trace] = []
                after = None
                while page := listed(store, slot, after=after, limit=2, **given):
                    paged += page
                    last = page[-1]
                    value = last.start_ns if order is TraceOrder.START else last.duration_ns
                    after = value, last.project, last.trace
                assert paged == every
                assert listed(store, slot, offset=2, limit=3, **given) == every[2:5]
        traces = [span.trace for span in spans]
        every_span = read_spans(store, *traces)
        first = read_spans(store, *traces, limit=3)
        assert first + read_spans(store, *traces, after=first[-1].order) == every_span

    def test_traces_of_all_projects_are_counted(self, store: Store, slot: Slot) -> None:
        spans = [span_of(slot, number, trace=trace_id(slot, number)) for number in range(3)]
        store.spans.append([*spans, *(msgspec.structs.replace(one, project="lab") for one in spans[:1])], FOREVER)
        selector = TraceFilter(traces=frozenset(span.trace for span in spans), limit=2, count=True)
        page = store.spans.list_traces(selector, BUDGET)
        assert ([one.project for one in page.traces], page.total) == (["default", "default"], 4)
        own = replace(selector, projects=frozenset({"lab"}))
        assert store.spans.list_traces(own, BUDGET).total == 1
        assert store.spans.list_traces(replace(own, projects=frozenset()), BUDGET).total == 0
        assert store.spans.list_traces(replace(selector, job=slot.job, projects=None), BUDGET).total == 4

    def test_a_deleted_job_has_no_spans(self, store: Store, slot: Slot) -> None:
        other = Slot()
        store.spans.append([span_of(slot, 1), span_of(other, 1)], FOREVER)
        store.delete_job(slot.key)
        assert listed(store, slot) == []
        assert read_spans(store, trace_id(slot), trace_id(other)) == [span_of(other, 1)]

    def test_an_append_of_no_spans_has_no_effect(self, store: Store, slot: Slot) -> None:
        store.spans.append([], FOREVER)
        assert listed(store, slot) == []

    def test_spans_of_many_days_and_a_large_one_are_stored(self, store: Store, slot: Slot) -> None:
        days = [span_of(slot, day, -day * 86_400 * _SECOND, trace=trace_id(slot, day)) for day in range(200)]
        large = span_of(slot, 999, attributes={"x": "y" * 900_000, **{f"k{at}": "v" for at in range(1_000)}})
        store.spans.append([*days, large], FOREVER)
        assert (
            store.spans.list_traces(TraceFilter(projects=OWN, job=slot.job, count=True, limit=0), BUDGET).total == 200
        )
        assert read_spans(store, trace_id(slot))[1] == large

    @given(data=st.data())
    @settings(max_examples=25, suppress_health_check=list(HealthCheck))
    def test_every_filter_chooses_what_the_oracle_does(self, store: Store, data: st.DataObject) -> None:
        slot = Slot()
        spans = data.draw(st.lists(self._spans(slot), max_size=8))
        store.spans.append(spans, FOREVER)
        oracle = MemorySpans()
        # The engine stores either of two equal spans.
        oracle.append({span.order: span for span in read_spans(store, *(span.trace for span in spans))}.values())
        for _ in range(3):
            selector = data.draw(self._filters(slot))
            assert store.spans.list_traces(selector, BUDGET) == oracle.list_traces(selector)

    @staticmethod
    def _spans(slot: Slot) -> "st.SearchStrategy[Span]":
        return st.builds(
            span_of,
            st.just(slot),
            st.integers(1, 10**6),
            st.integers(0, 3),
            st.integers(0, 3),
            trace=st.integers(0, 3).map(lambda number: trace_id(slot, number)),
            parent=st.sampled_from(["", "00000000000000aa"]),
            name=_texts,
            service=_texts,
            replica=_texts,
            kind=st.sampled_from(KINDS),
            status=st.sampled_from(STATUSES),
            message=_texts,
            attributes=_attributes,
            resource=_attributes,
            events=st.sampled_from([(), (SpanEvent(time_ns=1),)]),
        )

    @staticmethod
    def _filters(slot: Slot) -> "st.SearchStrategy[TraceFilter]":
        begin = slot.start * 1_000_000
        return st.builds(
            TraceFilter,
            projects=st.just(OWN),
            job=st.just(slot.job),
            start_ns=st.none() | st.integers(0, 3).map(begin.__add__),
            end_ns=st.none() | st.integers(0, 3).map(begin.__add__),
            names=_some(["a", "ab", ""]),
            services=_some(["a", ""]),
            replicas=_some(["a", ""]),
            statuses=_some(STATUSES),
            kinds=_some(KINDS),
            conditions=st.lists(_conditions, max_size=2).map(tuple),
            contains=st.sampled_from(["", "", "B", "%"]),
            has_events=st.booleans(),
            has_message=st.booleans(),
            min_ns=st.none() | st.integers(0, 4),
            max_ns=st.none() | st.integers(0, 4),
            order=st.sampled_from(TraceOrder),
            descending=st.booleans(),
            offset=st.integers(0, 2),
            limit=st.integers(0, 4),
            count=st.booleans(),
        )

    def test_a_question_that_reads_too_many_spans_is_refused(self, store: Store, slot: Slot) -> None:
        store.spans.append([span_of(slot, number, number) for number in range(10)], FOREVER)
        try:
            found = store.spans.list_traces(TraceFilter(projects=OWN, job=slot.job), ReadBudget(rows=1)).traces
        except LimitExceededError as error:
            assert error.field == "limit"  # noqa: PT017 - an engine without a budget of rows answers
        else:
            assert len(found) == 1
