"""Parts of OTLP that are not supported."""

from jobmeter.dialects.base import Gap, GapStatus

GAPS = (
    Gap(
        "Delta temporality",
        "It is refused and counted: a change that is lost, or sent again, would make every later total wrong. SDKs "
        "send totals unless configured otherwise; the Collector's `deltatocumulative` makes totals.",
    ),
    Gap(
        "Exponential histograms",
        "They are refused and counted: the store has one number for each time.",
        GapStatus.NOT_YET,
    ),
    Gap("`min` and `max` of histograms", "They are ignored: the time that they cover is unknown."),
    Gap("Exemplars", "They are ignored: they are not points of a series."),
    Gap("`start_time_unix_nano`", "It is ignored: a counter that falls was reset."),
    Gap("Description, metadata, schema URLs", "They are ignored: the catalogue defines metrics."),
    Gap("Profiles", "`/v1development/profiles` is 404, over gRPC UNIMPLEMENTED."),
    Gap("Schema URLs of spans and log records", "They are ignored: attributes are stored under their own names."),
)
