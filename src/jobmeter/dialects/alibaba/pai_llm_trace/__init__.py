"""Alibaba Cloud PaiLLMTrace 2024-03-11: traces, and the token for sending them. Sources and gaps: SPEC.md."""

from jobmeter.dialects.alibaba.common.product import Product, exclude
from jobmeter.dialects.base import Gap
from jobmeter.dialects.base.request import load_operations

PAI_LLM_TRACE = Product(
    name="pai-llm-trace",
    title="Alibaba Cloud PaiLLMTrace, API version 2024-03-11",
    version="2024-03-11",
    url_names=("PaiLLMTrace",),
    operations=load_operations(f"{__name__}.operations"),
    gaps=(
        Gap(
            "The filters TraceName and TraceType of ListTracesDatas, and SpanName with another operator than `=`",
            "They are refused: a root is not compared apart from the other spans.",
        ),
        exclude(
            "Evaluation: CreateOnlineEvalTask, EvaluateTrace, ListEvalResults and what belongs to them",
            "They query a language model of the vendor.",
        ),
        exclude("CreateServiceIdentityRole, GetServiceIdentityRole", "A key is sufficient."),
    ),
    fields={"limit": "PageSize", "offset": "PageNumber", "start": "MinTime", "end": "MaxTime", "range": "MinTime"},
    forbidden="NoPermission",
)
