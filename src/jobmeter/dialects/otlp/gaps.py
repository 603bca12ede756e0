"""Parts of OTLP that are not supported."""

from jobmeter.dialects.base import Gap, GapStatus

GAPS = (
    Gap(
        "Delta temporality",
        "It is refused and counted: a change that is lost, or sent again, would make every later total wrong. SDKs "
        "send totals unless they are told otherwise; the Collector's `deltatocumulative` makes totals.",
    ),
    Gap(
        "Exponential histograms",
        "They are refused and counted: the store keeps one number at a time.",
        GapStatus.NOT_YET,
    ),
    Gap("`min` and `max` of histograms", "They are passed over: they are those of no known span of time."),
    Gap("Exemplars", "They are passed over: they are no points of a series."),
    Gap("`start_time_unix_nano`", "It is passed over: a counter that falls has begun anew."),
    Gap("Description, metadata, schema URLs", "They are passed over: the catalogue says what a metric is."),
    Gap("Profiles", "`/v1development/profiles` is 404, over gRPC UNIMPLEMENTED."),
    Gap("Schema URLs of spans and log records", "They are passed over: attributes are kept under the names they have."),
)
