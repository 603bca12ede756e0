"""The arithmetic of questions in pandas, sample by sample: written from the documentation, sharing no code.

Samples are a frame with the columns of a series (metric, project, job, replica, attempt, node, device, labels), the
``time`` in ms and the ``value``, in the order in which they were written.
"""

import pandas as pd

SERIES = ["metric", "project", "job", "replica", "attempt", "node", "device", "labels"]
MEMBER = ["replica", "node", "device"]
RATIOS = {"memory.utilization": ("memory.usage", "memory.limit"), "cpu.utilization": ("cpu.usage", "cpu.limit")}
RATIOS["gpu.memory.utilization"] = ("gpu.memory.usage", "gpu.memory.limit")
COUNTERS = {"cpu.time", "network.receive", "gpu.energy"}
SUMMED_PARTS = {"network.receive", "cpu.time", "cpu.usage", "cpu.limit", "memory.usage", "memory.limit", "gpu.energy"}


def unique(samples: pd.DataFrame) -> pd.DataFrame:
    """Each (series, time) once, the last one written, in order of time."""
    return samples.drop_duplicates([*SERIES, "time"], keep="last").sort_values([*SERIES, "time"]).reset_index(drop=True)


def with_growth(samples: pd.DataFrame) -> pd.DataFrame:
    """To each sample of a counter how much it grew and how long that took, both 0 for the first ever."""
    before = samples.groupby(SERIES, sort=False)[["time", "value"]].shift()
    grown = samples["value"] - before["value"]
    samples = samples.copy()
    samples["increase"] = grown.where(grown >= 0, samples["value"]).where(before["time"].notna(), 0.0)
    samples["elapsed"] = (samples["time"] - before["time"]).fillna(0)
    return samples


def members(
    samples: pd.DataFrame, metric: str, start: int, end: int, step: int, statistic: str = "mean"
) -> pd.DataFrame:
    """The values of a metric's own samples: columns of ``MEMBER``, bucket, value."""
    mine = samples[samples["metric"] == metric]
    if metric in COUNTERS:
        mine = with_growth(mine)
    mine = mine[(mine["time"] >= start) & (mine["time"] < end)]
    if mine.empty:
        return pd.DataFrame(columns=[*MEMBER, "bucket", "value"])
    # A replica that restarted, perhaps elsewhere, stays one member.
    mine = mine.assign(bucket=mine["time"] // step * step, node=mine["node"].where(mine["device"] != "", ""))
    parts = mine.sort_values("time").groupby([*MEMBER, "labels", "bucket"])
    if metric in COUNTERS and statistic in ("mean", "increase"):
        sums = parts[["increase", "elapsed"]].sum()
        sums = sums[sums["elapsed"] > 0]
        value = sums["increase"] if statistic == "increase" else sums["increase"] * 1000 / sums["elapsed"]
    else:
        value = parts["value"].agg(statistic).astype(float)
    joined = value.groupby([*MEMBER, "bucket"])
    return (joined.sum() if metric in SUMMED_PARTS else joined.mean()).rename("value").reset_index()


def values(samples: pd.DataFrame, metric: str, start: int, end: int, step: int) -> tuple[pd.DataFrame, bool]:
    """The values by member, derived where they were not measured; True when a ratio may be one of sums."""
    if metric == "cpu.usage":
        own = members(samples, metric, start, end, step)
        rate = members(samples, "cpu.time", start, end, step)
        return pd.concat([own, _without(rate, own)]), False
    if metric not in RATIOS:
        return members(samples, metric, start, end, step), False
    measured = members(samples, metric, start, end, step)
    upper, lower = RATIOS[metric]
    usage = _without(values(samples, upper, start, end, step)[0], measured)
    if usage.empty:
        return measured, measured.empty
    pairs = usage.merge(members(samples, lower, start, end, step), on=[*MEMBER, "bucket"], suffixes=("", "_limit"))
    pairs = pairs[pairs["value_limit"] > 0].rename(columns={"value": "upper", "value_limit": "lower"})
    pairs["value"] = pairs["upper"] / pairs["lower"]
    return pd.concat([measured, pairs]), measured.empty


def lines(
    samples: pd.DataFrame, metric: str, by: str, start: int, end: int, step: int
) -> dict[tuple[str, str], dict[int, float]]:
    """(replica, device) of each line to its points."""
    found, sums = values(samples, metric, start, end, step)
    keys = {"job": [], "replica": ["replica"], "device": MEMBER}[by]
    if found.empty:
        return {}
    groups = found.groupby([*keys, "bucket"])
    if sums:
        both = groups[["upper", "lower"]].sum()
        value = both["upper"] / both["lower"]
    else:
        value = groups["value"].mean()
    answer: dict[tuple[str, str], dict[int, float]] = {}
    for row in value.rename("value").reset_index().to_dict("records"):
        name = (row.get("replica", ""), row.get("device", ""))
        answer.setdefault(name, {})[int(row["bucket"])] = row["value"]
    return answer


def _without(one: pd.DataFrame, other: pd.DataFrame) -> pd.DataFrame:
    """The rows of members that the other frame does not have at all."""
    theirs = set(other[MEMBER].itertuples(index=False, name=None))
    mine = one[MEMBER].itertuples(index=False, name=None)
    return one[[member not in theirs for member in mine]]
