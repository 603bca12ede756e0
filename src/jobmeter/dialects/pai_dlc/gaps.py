"""What of PAI-DLC is not answered."""

from jobmeter.dialects.base import Gap, GapStatus

GAPS = (
    Gap("GetToken with `TargetType=tensorboard`", "Jobmeter serves no TensorBoard.", GapStatus.NEVER),
    Gap(
        "GetToken's `TokenSettings.*`",
        "They concern accounts of the vendor; they are accepted and change nothing.",
        GapStatus.NEVER,
    ),
)
