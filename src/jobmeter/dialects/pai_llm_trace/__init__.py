"""Alibaba Cloud PaiLLMTrace 2024-03-11: the token to send traces with, and traces. Sources and gaps: SPEC.md."""

from jobmeter.dialects.alibaba.product import Product
from jobmeter.dialects.base import Gap, GapStatus
from jobmeter.dialects.pai_llm_trace.operations import OPERATIONS

GAPS = (
    Gap(
        "The filters TraceName and TraceType of ListTracesDatas, and SpanName with another operator than `=`",
        "They are refused: a root is not compared apart from the other spans.",
    ),
    Gap(
        "Evaluation: CreateOnlineEvalTask, EvaluateTrace, ListEvalResults and what belongs to them",
        "They query a language model of the vendor.",
        GapStatus.NEVER,
    ),
    Gap("CreateServiceIdentityRole, GetServiceIdentityRole", "A key is sufficient.", GapStatus.NEVER),
)

PAI_LLM_TRACE = Product(
    name="pai-llm-trace",
    title="Alibaba Cloud PaiLLMTrace, API version 2024-03-11",
    version="2024-03-11",
    operations=OPERATIONS,
    gaps=GAPS,
    url_names=("PaiLLMTrace",),
    forbidden="NoPermission",
    fields={"limit": "PageSize", "offset": "PageNumber", "start": "MinTime", "end": "MaxTime", "range": "MinTime"},
)
