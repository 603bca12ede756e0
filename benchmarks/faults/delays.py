"""Delays from the begin of a fault until its finding opens while the job runs."""

from collections.abc import Iterable

import numpy as np

from benchmarks.faults.build import START, Made
from jobmeter.diagnose.examine import examine
from jobmeter.diagnose.open import OpenFindings
from jobmeter.diagnose.registry import list_rules
from jobmeter.diagnose.rule import Rule
from jobmeter.diagnose.running import RUNNING
from jobmeter.diagnose.thresholds import Thresholds
from jobmeter.model.job import JobState
from jobmeter.model.time import MINUTE, SECOND

_TURN = 15 * SECOND
"""Time between two evaluations of a running job, as on a server that keeps up."""
_STRIDE = 8
"""Turns that are left out while nothing is found; then the first turn is searched among them."""
_AFTER = 2 * MINUTE
"""Time for which a job is evaluated after its last sample."""


def detection_delay(made: Made, name: str, thresholds: Thresholds) -> int | None:
    """Return the time from when the fault began until the finding of a rule opens, in ms.

    None where no rule of that name is evaluated while jobs run, where the job fails of the fault, or none opens.
    """
    rule = next(one for one in list_rules() if one.name == name)
    if not rule.running or made.state is not JobState.RUNNING:
        return None
    turns = int((START + made.length + _AFTER - made.began) // _TURN)
    before = 0
    for turn in range(_STRIDE, turns + _STRIDE, _STRIDE):
        if _opens(made, made.began + turn * _TURN, rule, thresholds):
            between = range(before + 1, turn)
            first = next((one for one in between if _opens(made, made.began + one * _TURN, rule, thresholds)), turn)
            return first * _TURN
        before = turn
    return None


def _opens(made: Made, now_ms: int, rule: Rule, thresholds: Thresholds) -> bool:
    """Return True where the evaluation at a time, over the samples until then, opens a finding of the rule."""
    numbers = thresholds[RUNNING]
    found = examine(made.running_case(now_ms, int(numbers["window"]), rule), thresholds, [rule])
    upto = int(made.time[max(int(np.searchsorted(made.time, now_ms)) - 1, 0)])
    return bool(OpenFindings().update(found, upto, now_ms, numbers["hold"]).opened)


def quantiles(delays: Iterable[int]) -> tuple[float, float]:
    """Return the median and the 90th percentile of at least one delay, in ms."""
    middle, late = np.quantile(list(delays), (0.5, 0.9)).tolist()
    return float(middle), float(late)
