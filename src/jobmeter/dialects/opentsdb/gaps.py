"""Parts of OpenTSDB that are not supported."""

from jobmeter.dialects.base import Gap, GapStatus

GAPS = (
    Gap("/api/query/exp, /api/query/gexp", "Expressions are a separate language: query the metrics."),
    Gap(
        "DELETE /api/query, `delete`",
        "Samples are deleted with their job, or when their retention ends.",
        GapStatus.NEVER,
    ),
    Gap("`rollupUsage`, rollup_ in a query, /api/rollup", "Roll-ups are used automatically if they are exact."),
    Gap("/api/histogram, `percentiles`, show-histogram-buckets", "Histograms are not stored."),
    Gap("/api/annotation, annotations in answers", "Events of a job are stored; notes of users are not."),
    Gap(
        "/api/uid, /api/tree, /api/search other than lookup",
        "There are no UIDs: names are stored as they are.",
        GapStatus.NEVER,
    ),
    Gap(
        "/api/dropcaches, /api/serializers, /api/stats/*, /q, /logs, /s",
        "They concern OpenTSDB's internals.",
        GapStatus.NEVER,
    ),
    Gap("`jsonp`, `serializer`, `method_override`", "JSON is the only form; a call uses its real method."),
)
