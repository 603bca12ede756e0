"""Ranks that work differently from the others, in jobs without devices."""

from collections.abc import Iterator, Sequence

import numpy as np
from msgspec.structs import replace

from jobmeter.diagnose.devices import BUSY, has_devices
from jobmeter.diagnose.peers import Outlier, Peers, iterate_peers
from jobmeter.diagnose.rule import Case, Evidence, Findings, Numbers, Rule, Severity
from jobmeter.diagnose.signal import Signal, name_replica
from jobmeter.diagnose.wording import format_amount, format_metric_amount
from jobmeter.model.batch import Bools

_CPU, _WAITS, _WANTED = "cpu.usage", "pressure.cpu", "wanted"


@Rule(
    title="Straggler rank",
    sees="One rank computes while the others of its role wait for it, or the other way round.",
    advice="Check that rank's node and data shard: uneven shards, a busy neighbour, a slow disk or clock.",
    source="https://github.com/NVIDIA/nvidia-resiliency-ext",
    metrics=("cpu.usage", "pressure.cpu", *BUSY),
    running=True,
)
def straggler_rank(rule: Rule, case: Case, numbers: Numbers) -> Findings:
    """Find replicas whose CPU differs from the others of their role for long enough.

    A replica that computes while the others wait for it uses more CPU. A replica that is slowed down uses less.
    """
    if has_devices(case, numbers):
        return  # straggler_gpu covers jobs with devices
    cpus, waits = case.select_signals(_CPU, numbers), case.select_signals(_WAITS, numbers)
    signals = {_CPU: cpus, _WANTED: _add_waits(cpus, waits)}
    for scales in iterate_peers(
        signals, [_CPU], numbers["replicas"], dict.fromkeys(signals, numbers["floor"]), numbers
    ):
        reported: set[int] = set()
        for peers in scales:
            odd = peers.find_outliers(_find_apart(peers, numbers), numbers)
            rows = {one.row for one in odd}
            for one in odd:
                if one.row not in reported and peers.is_parted(_CPU, one, rows, numbers["gap"]):
                    reported.add(one.row)
                    evidence = list(_evidence(case, peers, one, waits))
                    confidence = min(0.95, 0.6 + 0.3 * abs(peers.measure_distance(_CPU, one)))
                    span = one.start, one.end
                    yield rule.report(name_replica(one.signal), Severity.WARNING, span, evidence, confidence)


def _find_apart(peers: Peers, numbers: Numbers) -> Bools:
    """Return where a replica uses or requests much more or less CPU than the others, bool[member, window]."""
    cpu = peers.metrics[_CPU]
    few = len(peers) < numbers["many"]
    high, low = (numbers["ratio"], 1 / numbers["ratio"]) if few else (1 / numbers["score"], numbers["score"])
    with np.errstate(invalid="ignore"):
        large = np.abs(cpu.value - cpu.others) > numbers["cores"]
        apart = cpu.find_far(numbers["z"]) & large & ((cpu.value > high * cpu.others) | (cpu.value < low * cpu.others))
        wanted = peers.metrics.get(_WANTED)
        if wanted is not None:
            # On a busy machine a replica that computes gets hardly more CPU than the replicas that wait for it.
            more = (wanted.value > high * wanted.others) & (wanted.value - wanted.others > numbers["cores"])
            apart |= (cpu.value > high * cpu.others) & more
    found: Bools = apart
    return found


def _add_waits(cpus: Sequence[Signal], waits: Sequence[Signal]) -> list[Signal]:
    """Return used cores plus the time of waiting for one, if all replicas have both."""
    pressure = {signal.member: signal for signal in waits}
    if not all(signal.member in pressure for signal in cpus):
        return []
    both = ((signal, pressure[signal.member].read_at(signal.time)) for signal in cpus)
    return [replace(signal, metric=_WANTED, value=signal.value + np.nan_to_num(waiting)) for signal, waiting in both]


def _evidence(case: Case, peers: Peers, one: Outlier, waits: Sequence[Signal]) -> Iterator[Evidence]:
    cpu = peers.metrics[_CPU]
    mine = float(np.nanmedian(cpu.value[one.row, one.windows]))
    usual = float(np.nanmedian(cpu.others[one.row, one.windows]))
    name = case.name_signal(one.signal)
    what = "the others wait for it" if mine > usual else "it does less than they do"
    text = f"{name} uses {format_metric_amount(_CPU, mine)}; the median is {format_metric_amount(_CPU, usual)}: {what}"
    yield one.signal.cite(text, mine, usual, "{core}", time=one.start)
    for waiting in (signal for signal in waits if signal.member == one.member):
        share = float(waiting.cut(one.start, one.end).value.mean())
        yield waiting.cite(f"{name} waited for a CPU for {format_amount(share, '1')} of the time", share, None, "1")
