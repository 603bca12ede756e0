"""Parts of remote write that are not supported."""

from jobmeter.dialects.base import Gap, GapStatus

GAPS = (
    Gap(
        "Native histograms", "They are refused and counted: the store has one number for each time.", GapStatus.NOT_YET
    ),
    Gap("Exemplars", "They are ignored: traces are stored separately, not as points of a series."),
    Gap("Metadata (type, help, unit)", "It is ignored: the catalogue defines metrics."),
    Gap("`start_timestamp`, `created_timestamp`", "They are ignored: a counter that falls was reset."),
    Gap("Other encodings than snappy", "The protocol has no other; vmagent falls back to it after 415."),
    Gap(
        "Experimental parts of PromQL",
        "`info`, `smoothed`, `anchored`, computed durations; functions of native histograms.",
        GapStatus.NOT_YET,
    ),
    Gap("/api/v1/targets, /api/v1/admin", "Agents send; nothing is scraped here.", GapStatus.NEVER),
)
