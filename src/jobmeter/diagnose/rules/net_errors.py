"""A network interface of a node of the job loses packets, or the node retransmits many TCP segments."""

from collections.abc import Iterator

import numpy as np
from msgspec.structs import replace

from jobmeter.diagnose.rule import Case, Evidence, Findings, Numbers, Rule, Severity, Subject
from jobmeter.diagnose.signal import Signal
from jobmeter.diagnose.wording import format_amount
from jobmeter.query.stretches import Stretch

_PACKETS, _SENT, _AGAIN = "node.network.packets", "node.tcp.sent", "node.tcp.retransmitted"
_LOST = {"node.network.errors": "lost to errors", "node.network.dropped": "dropped"}


@Rule(
    title="Network errors",
    advice="Check cable, transceiver and switch port (ethtool -S); drops without errors are full buffers (ethtool -g).",
    source="https://github.com/prometheus/node_exporter/blob/master/docs/node-mixin/alerts/alerts.libsonnet",
    nodes=(_PACKETS, *_LOST, _SENT, _AGAIN),
    running=True,
)
def net_errors(rule: Rule, case: Case, numbers: Numbers) -> Findings:
    """Find links that lose more than a share of their packets, and nodes that retransmit without such a link."""
    links: dict[Subject, list[tuple[Stretch, Evidence]]] = {}
    for name, stretch, evidence, node in _find_lossy_links(case, numbers):
        links.setdefault(Subject("link", f"{node}/{name}"), []).append((stretch, evidence))
    nodes = {subject.name.partition("/")[0] for subject in links}
    for (node, _), (signal, total) in _pairs(case, _AGAIN, _SENT, numbers).items():
        if node in nodes:
            continue
        found = _share(case, signal, total, numbers["again"], numbers)
        if found is not None:
            share = format_amount(found[1], "1")
            limit = format_amount(numbers["again"], "1")
            text = f"{node} retransmits {share} of its TCP segments; more than {limit} is unusual"
            evidence = signal.cite(text, found[1], numbers["again"], "1", time=found[0].start)
            links[Subject("node", node)] = [(found[0], evidence)]
    for subject, found_here in links.items():
        found_here.sort(key=lambda one: -(one[1].value or 0.0))
        start, end = min(one.start for one, _ in found_here), max(one.end for one, _ in found_here)
        yield rule.report(subject, Severity.WARNING, (start, end), [evidence for _, evidence in found_here], 0.9)


def _find_lossy_links(case: Case, numbers: Numbers) -> Iterator[tuple[str, Stretch, Evidence, str]]:
    for metric, verb in _LOST.items():
        for (node, part), (lost, total) in _pairs(case, metric, _PACKETS, numbers).items():
            found = _share(case, lost, total, numbers["lost"], numbers)
            if found is not None:
                link, _, direction = part.partition(" ")
                way = "received" if direction == "receive" else "sent"
                text = f"{link} of {node}: {format_amount(found[1], '1')} of the packets {way} are {verb}"
                evidence = lost.cite(
                    f"{text}; more than {format_amount(numbers['lost'], '1')} is unusual",
                    found[1],
                    numbers["lost"],
                    "1",
                    time=found[0].start,
                )
                yield link, found[0], evidence, node


def _pairs(case: Case, part: str, whole: str, numbers: Numbers) -> dict[tuple[str, str], tuple[Signal, Signal]]:
    """Return lost and all packets in equal windows, by node and link."""
    wholes = case.average_nodes(whole, numbers)
    parts = case.average_nodes(part, numbers)
    return {place: (one, wholes[place]) for place, one in parts.items() if place in wholes}


def _share(case: Case, part: Signal, whole: Signal, limit: float, numbers: Numbers) -> tuple[Stretch, float] | None:
    """Return the time in which a part was above its limit as a share of the whole, and its mean; None if it never was.

    A link with hardly any traffic is not judged.
    """
    total = part.value + whole.read_at(part.time)
    share = replace(part, value=np.nan_to_num(part.value / np.maximum(total, 1e-9))).with_ends(part.until)
    longest = case.find_stretch(share, (share.value > limit) & (total > numbers["packets"]), numbers)
    return None if longest is None else (longest, float(share.select_values(longest).mean()))
