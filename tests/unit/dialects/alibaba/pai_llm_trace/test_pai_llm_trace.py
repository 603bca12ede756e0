from pathlib import Path

from google.protobuf import json_format
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

from jobmeter.dialects.alibaba.common.operation import dump_json
from jobmeter.dialects.alibaba.pai_llm_trace import PAI_LLM_TRACE
from jobmeter.dialects.alibaba.pai_llm_trace.otel import convert_trace, drop_embeddings
from jobmeter.dialects.base import Dialect
from jobmeter.model.span import Span, SpanKind, SpanStatus
from jobmeter.testing.dialect import DialectTests


class TestPaiLlmTrace(DialectTests):
    cases = Path(__file__).parent / "cases"

    def make_dialect(self) -> Dialect:
        return PAI_LLM_TRACE


def test_the_compatible_form_is_opentelemetrys_own():
    span = Span(
        trace="01" * 16,
        span="02" * 8,
        name="llm",
        kind=SpanKind.CLIENT,
        start_ns=5,
        end_ns=7,
        status=SpanStatus.ERROR,
        attributes={"a": "b", "n": 3, "f": 0.5, "t": True, "l": [1, "x"], "m": {"k": None}},
    )
    read = json_format.Parse(dump_json(convert_trace([span])), TracesData()).resource_spans[0].scope_spans[0].spans[0]
    assert (read.trace_id.hex(), read.span_id.hex(), read.kind, read.status.code) == ("01" * 16, "02" * 8, 3, 2)
    assert {one.key: one.value.WhichOneof("value") for one in read.attributes} == {
        "a": "string_value", "n": "int_value", "f": "double_value", "t": "bool_value", "l": "array_value",
        "m": "kvlist_value",
    }  # fmt: skip


def test_contents_of_embeddings_are_left_out():
    given = {"embedding.vector": [0.1, 0.2], "gen_ai.embedding": "[1, 2]", "embedding.model": "m", "list": [1]}
    assert drop_embeddings(given) == {
        "embedding.vector": [], "gen_ai.embedding": "[]", "embedding.model": "m", "list": [1],
    }  # fmt: skip
