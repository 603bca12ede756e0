"""Arithmetic of questions in pandas, sample by sample: written from the documentation, without shared code.

Samples are a frame with the columns of a series (metric, project, job, replica, attempt, node, device, labels), the
``time`` in ms and the ``value``, in the order of writing.
"""

from typing import Any

import numpy as np
import pandas as pd

SERIES = ["metric", "project", "job", "replica", "attempt", "node", "device", "labels"]
MEMBER = ["replica", "node", "device"]
RATIOS = {"memory.utilization": ("memory.usage", "memory.limit"), "cpu.utilization": ("cpu.usage", "cpu.limit")}
RATIOS["gpu.memory.utilization"] = ("gpu.memory.usage", "gpu.memory.limit")
COUNTERS = {"cpu.time", "network.receive", "gpu.energy"}
AMOUNTS = {"memory.usage", "cpu.usage", "gpu.memory.usage", "gpu.power"}
SUMMED_PARTS = {"network.receive", "cpu.time", "cpu.usage", "cpu.limit", "memory.usage", "memory.limit", "gpu.energy"}


def unique(samples: pd.DataFrame) -> pd.DataFrame:
    """Return the last written sample of each (series, time), in order of time."""
    return samples.drop_duplicates([*SERIES, "time"], keep="last").sort_values([*SERIES, "time"]).reset_index(drop=True)


def number_keys(table: pd.DataFrame) -> tuple["np.ndarray[Any, np.dtype[Any]]", list[tuple[Any, ...]]]:
    """Number the distinct rows in the order of their first appearance. Return each row's number, and those rows."""
    numbers = table.groupby(list(table), sort=False).ngroup().to_numpy(np.int64)
    _, first = np.unique(numbers, return_index=True)
    return numbers, list(table.iloc[first].itertuples(index=False, name=None))


def with_growth(samples: pd.DataFrame) -> pd.DataFrame:
    """Add to each sample of a counter its increase and the elapsed time, both 0 for the first sample."""
    before = samples.groupby(SERIES, sort=False)[["time", "value"]].shift()
    grown = samples["value"] - before["value"]
    samples = samples.copy()
    samples["increase"] = grown.where(grown >= 0, samples["value"]).where(before["time"].notna(), 0.0)
    samples["elapsed"] = (samples["time"] - before["time"]).fillna(0)
    return samples


def one_after_another(samples: pd.DataFrame) -> pd.DataFrame:
    """Replace each device by its place within the replica.

    A replica uses the devices of one attempt at a time. Devices of the next attempt take over the places, regardless of
    the node: a device takes the place of one with its name, and the others take the remaining places in order.
    """
    of_device = samples["device"] != ""
    place: dict[tuple[str, int, str, str], str] = {}
    for replica, mine in samples[of_device].groupby("replica"):
        names: list[str] = []
        for _, now in mine.groupby("attempt"):
            devices = sorted(now[["node", "device"]].drop_duplicates().itertuples(index=False, name=None))
            left = dict(enumerate(names))
            same = {one: at for one in devices for at, name in left.items() if name == one[1]}
            free = [at for at in left if at not in same.values()] + list(range(len(names), len(names) + len(devices)))
            taken = {one: same[one] if one in same else free.pop(0) for one in devices}
            names += [""] * len(devices)
            for (node, device), at in taken.items():
                names[at] = device
                place[str(replica), int(now["attempt"].iloc[0]), node, device] = f"place {at}"
            names = names[: max([*taken.values(), *left, -1]) + 1]
    codes, keys = number_keys(samples[["replica", "attempt", "node", "device"]])
    places = [place.get((replica, int(attempt), node, device), "") for replica, attempt, node, device in keys]
    return samples.assign(
        device=np.array(places, dtype=object)[codes],
        node=samples["node"].where(~of_device, ""),
    )


def members(
    samples: pd.DataFrame, metric: str, start: int, end: int, step: int, statistic: str = "mean"
) -> pd.DataFrame:
    """Aggregate a metric's own samples into columns of ``MEMBER``, bucket and value.

    Devices are identified by their place. Two successive devices of one place are one member, whose samples all have
    the same weight.
    """
    mine = samples[samples["metric"] == metric]
    if metric in COUNTERS:
        mine = with_growth(mine)
    mine = mine[(mine["time"] >= start) & (mine["time"] < end)]
    if mine.empty:
        return pd.DataFrame(columns=[*MEMBER, "bucket", "value"])
    # A replica that restarts, perhaps on another node, stays one member.
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
    """Return the values by member, derived where unmeasured, and True if a ratio can be computed from sums."""
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
    samples: pd.DataFrame, metric: str, by: str, start: int, end: int, step: int, *, whole: bool = False
) -> dict[tuple[str, str, str], dict[int, float]]:
    """Return the points of each line (replica, node of a device, device). ``whole`` sums amounts."""
    found, sums = values(samples if by == "device" else one_after_another(samples), metric, start, end, step)
    keys = {"job": [], "replica": ["replica"], "device": MEMBER}[by]
    if found.empty:
        return {}
    groups = found.groupby([*keys, "bucket"])
    if sums:
        both = groups[["upper", "lower"]].sum()
        value = both["upper"] / both["lower"]
    else:
        value = groups["value"].sum() if whole and metric in AMOUNTS else groups["value"].mean()
    answer: dict[tuple[str, str, str], dict[int, float]] = {}
    for row in value.rename("value").reset_index().to_dict("records"):
        name = (row.get("replica", ""), row.get("node", ""), row.get("device", ""))
        answer.setdefault(name, {})[int(row["bucket"])] = row["value"]
    return answer


def _without(one: pd.DataFrame, other: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of members that are absent from the other frame."""
    theirs = set(other[MEMBER].itertuples(index=False, name=None))
    mine = one[MEMBER].itertuples(index=False, name=None)
    return one[[member not in theirs for member in mine]]
