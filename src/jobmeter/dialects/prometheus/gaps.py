"""Parts of remote write that are not supported."""

from jobmeter.dialects.base import Gap, GapStatus

GAPS = (
    Gap("Native histograms", "They are refused and counted: the store keeps one number at a time.", GapStatus.NOT_YET),
    Gap("Exemplars", "They are passed over: traces have a store of their own, not points of a series."),
    Gap("Metadata (type, help, unit)", "It is passed over: the catalogue says what a metric is."),
    Gap(
        "Stale markers as ends of series",
        "They are passed over and counted: a series ends where its samples end.",
        GapStatus.NOT_YET,
    ),
    Gap("`start_timestamp`, `created_timestamp`", "They are passed over: a counter that falls has begun anew."),
    Gap("Other encodings than snappy", "The protocol has none other; vmagent falls back to it when it is told 415."),
    Gap("Remote read, PromQL, /api/v1/query", "Questions are asked through the other APIs.", GapStatus.NEVER),
)
