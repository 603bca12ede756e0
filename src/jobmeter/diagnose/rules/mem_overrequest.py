"""The memory limit of a replica is far above the highest usage of any replica of its role."""

from jobmeter.diagnose.memory import get_limit
from jobmeter.diagnose.peers import name_role
from jobmeter.diagnose.rule import Case, Findings, Numbers, Rule, Severity
from jobmeter.diagnose.signal import Signal, name_replica
from jobmeter.diagnose.wording import format_amount

_USED, _PEAK, _LIMIT, _TOTAL = "memory.usage", "memory.peak", "memory.limit", "node.memory.total"


@Rule(
    title="Memory overrequested",
    advice="Request less memory: other jobs could use it. Leave room for the file cache of files that are read again.",
    source="https://github.com/PrincetonUniversity/job_defense_shield",
    metrics=(_USED, _PEAK, _LIMIT),
    nodes=(_TOTAL,),
)
def mem_overrequest(rule: Rule, case: Case, numbers: Numbers) -> Findings:
    """Find replicas whose peak stays far below a limit that somebody set.

    A limit as large as the node's memory is no request. If the node's memory is unknown, there is no finding. All
    replicas of a role have the same limit, so all of them must stay below it.
    """
    whole, peaks = case.map_by_member(_USED), case.map_by_member(_PEAK)
    totals = {one.node: float(one.value.max()) for one in case.nodes.get(_TOTAL, ()) if len(one)}
    nodes = {one.name: one.node for one in case.view.replicas}
    found: list[tuple[Signal, float, float]] = []
    needed: set[str] = set()
    for signal in case.select_signals(_USED, numbers):
        limit = get_limit(case.means.get(_LIMIT, ()), signal, case.job.limits.get(_LIMIT)) or 0.0
        measured = (whole[signal.member], peaks.get(signal.member))
        most = max(float(one.value.max()) for one in measured if one is not None and len(one))
        if most >= numbers["use"] * limit > 0:
            needed.add(name_role(signal))
        start, end = signal.span
        total = totals.get(nodes.get(signal.replica, ""), 0.0)
        if numbers["bytes"] <= limit < numbers["node"] * total and end - start >= numbers["hold"]:
            found.append((signal, most, limit))
    for signal, most, limit in found:
        if name_role(signal) not in needed:
            used, allowed = format_amount(most, "By"), format_amount(limit, "By")
            text = f"{case.name_signal(signal)} used at most {used}; its limit is {allowed}"
            evidence = signal.cite(text, most, limit, "By")
            yield rule.report(name_replica(signal), Severity.INFO, signal.span, [evidence], 0.9)
