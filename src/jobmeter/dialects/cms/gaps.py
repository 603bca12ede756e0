"""Parts of CloudMonitor that are not supported."""

from jobmeter.dialects.base import Gap, GapStatus

GAPS = (
    Gap("Namespaces other than `acs_pai_dlc`", "They are about other products.", GapStatus.NEVER),
    Gap("The namespace `acs_pai_dsw`", "It is about notebooks, which are no jobs.", GapStatus.NEVER),
    Gap("`Express`", "Its `groupby` joins instances of other products.", GapStatus.NEVER),
    Gap("DescribeMetricTop, DescribeMetricData", "The same points come from DescribeMetricList."),
    Gap(
        "Alerts, dashboards, groups, sites and all other operations",
        "They are refused with `InvalidAction.NotFound`.",
        GapStatus.NEVER,
    ),
)
