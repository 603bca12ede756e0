"""Delays from the start of a fault until its finding opens while the job runs."""

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
"""Time in ms between two evaluations of a running job, as on a server without a backlog."""
_STRIDE = 8
"""Evaluations in one stride of the search. The first evaluation with a finding is then searched within the stride."""
_AFTER = 2 * MINUTE
"""Time in ms for which a job is evaluated after its last sample."""


def detection_delay(made: Made, name: str, thresholds: Thresholds) -> int | None:
    """Return the time in ms from the start of the fault until a finding of the rule ``name`` opens.

    Returns None if that rule is not evaluated while jobs run, if the job ends by the fault, or if no finding opens.
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
    """Return True if the evaluation at ``now_ms``, over the samples before, opens a finding of the rule."""
    numbers = thresholds[RUNNING]
    found = examine(made.running_case(now_ms, int(numbers["window"]), rule), thresholds, [rule])
    upto = int(made.time[max(int(np.searchsorted(made.time, now_ms)) - 1, 0)])
    return bool(OpenFindings().update(found, upto, now_ms, numbers["hold"]).opened)


def quantiles(delays: Iterable[int]) -> tuple[float, float]:
    """Return the median and the 90th percentile of at least one delay, in ms."""
    middle, late = np.quantile(list(delays), (0.5, 0.9)).tolist()
    return float(middle), float(late)
